"""OmniLearn: proportional control of the batches with a dead band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lbbsp.core.allocate import apportion
from lbbsp.core.policy.base import Problem, Proposal
from lbbsp.core.predict import Ema, Predictor
from lbbsp.core.types import FloatArray, IntArray, Reports
from lbbsp.errors import ConfigurationError

__all__ = ["OmniLearn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OmniLearn:
    r"""A controller on each worker's smoothed time: ``x_i <- x_i - x_i (t_i - mean t) / t_i``.

    The error of worker i is its smoothed time's distance from the mean over the workers; the correction is its speed
    times that error.  The new sizes are normalised to the global batch.  They are taken only if some worker's size
    changes by more than the dead band, after which smoothing starts anew.

    Args:
        dead_band: least relative change of a size.
        window: iterations over which times are averaged before sizes are judged.
        predictor: for the record.

    Raises:
        ConfigurationError: a value is out of its range.

    Source: S. Tyagi and P. Sharma, "Taming Resource Heterogeneity In Distributed ML Training With Dynamic Batching",
    ACSOS 2020, and "OmniLearn: A Framework for Distributed Deep Learning over Heterogeneous Clusters".
    """

    dead_band: float = 0.05
    window: int = 5
    predictor: Predictor[Any] = Ema()
    name: str = "omnilearn"

    def __post_init__(self) -> None:
        if not 0 <= self.dead_band < 1:
            raise ConfigurationError(f"dead_band={self.dead_band}: must lie in [0, 1), a fraction of a size")
        if self.window < 1:
            raise ConfigurationError(f"window={self.window}: must be 1 or more iterations")

    def init(self, problem: Problem) -> tuple[int, FloatArray]:
        """Iterations and seconds of the open window."""
        return 0, np.zeros(problem.workers)

    def propose(
        self, problem: Problem, state: tuple[int, FloatArray], reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, tuple[int, FloatArray]]:
        """A correction at the end of a window."""
        if np.count_nonzero(reports.size != current):
            return None, self.init(problem)
        count, seconds = state[0] + 1, state[1] + reports.compute_s
        if count < self.window:
            return None, (count, seconds)
        times = seconds / count
        mean = sum(times.tolist()) / times.size
        wanted = np.maximum(current, 1) * (mean / times)  # = x - (x / t) (t - mean)
        sizes = apportion(wanted, problem.global_batch_size, problem.bounds)
        change = float((np.abs(sizes - current) / np.maximum(current, 1)).max())
        if change <= self.dead_band:
            return None, self.init(problem)
        before_s, after_s = float(times.max()), float((times * sizes / np.maximum(current, 1)).max())
        detail = f"times lie about their mean of {mean:.4g} s; the largest correction is {change:.1%}"
        return Proposal(sizes, after_s, before_s, detail, weighed=True), self.init(problem)
