"""LBB: a linear model of time against batch for each worker, solved again in every iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lbbsp.core.allocate import minmax
from lbbsp.core.policy.base import Problem, Proposal
from lbbsp.core.predict import LastValue, Predictor
from lbbsp.core.time_models import AffineTimes
from lbbsp.core.types import FloatArray, IntArray, Reports
from lbbsp.errors import ConfigurationError

__all__ = ["Lbb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lbb:
    """Fit ``a + b x`` to each worker's last iterations by least squares, and take the sizes that equalise the times.

    A worker that has run one size only is taken to need time in proportion to it.  The solution is taken in each
    iteration whatever it gains: the published description has performance models of all workers, their solution and
    fine-tuning of the sizes during training, and no threshold.  The length of the memory is ours.

    Args:
        window: iterations that the fit looks back on.
        predictor: for the record.

    Raises:
        ConfigurationError: ``window`` is less than 2.

    Source: "LBB: load-balanced batching for efficient distributed learning on heterogeneous GPU cluster", The Journal
    of Supercomputing 80, 2024, doi:10.1007/s11227-023-05886-w; its abstract.
    """

    window: int = 20
    predictor: Predictor[Any] = LastValue()
    name: str = "lbb"

    def __post_init__(self) -> None:
        if self.window < 2:
            raise ConfigurationError(f"window={self.window}: must be 2 or more iterations")

    def init(self, problem: Problem) -> tuple[FloatArray, FloatArray]:
        """Sizes and times of the last iterations, shape ``(at most window, W)``."""
        none = np.zeros((0, problem.workers))
        return none, none

    def propose(
        self, problem: Problem, state: tuple[FloatArray, FloatArray], reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, tuple[FloatArray, FloatArray]]:
        """Fit and solve."""
        x = np.concatenate([state[0], np.maximum(reports.size, 1)[None]])[-self.window :]
        t = np.concatenate([state[1], reports.compute_s[None]])[-self.window :]
        mean_x, mean_t = x.sum(axis=0) / len(x), t.sum(axis=0) / len(x)
        xx, xt = ((x - mean_x) ** 2).sum(axis=0), ((x - mean_x) * (t - mean_t)).sum(axis=0)
        proportional = mean_t / mean_x
        slope = np.where(xx > 0, xt / np.where(xx > 0, xx, 1.0), proportional)
        slope = np.clip(slope, 0.01 * proportional, 2.0 * proportional)  # noise can make it negative
        models = AffineTimes(np.zeros(problem.workers), mean_t - slope * mean_x, slope)
        sizes = minmax(models, problem.global_batch_size, problem.bounds)
        before_s, after_s = float(models.time_s(current).max()), float(models.time_s(sizes).max())
        detail = f"by lines through the last {len(x)} iterations {before_s:.4g} s become {after_s:.4g} s"
        return Proposal(sizes, after_s, before_s, detail, weighed=True, models=models), (x, t)
