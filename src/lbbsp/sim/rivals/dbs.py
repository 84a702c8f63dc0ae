"""DBS: sizes in proportion to the speeds of the last epoch, once an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lbbsp.core.allocate import apportion
from lbbsp.core.policy.base import Problem, Proposal
from lbbsp.core.predict import LastValue, Predictor
from lbbsp.core.types import FloatArray, IntArray, Reports
from lbbsp.errors import ConfigurationError

__all__ = ["Dbs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dbs:
    """At the end of an epoch each worker's speed is its samples over its compute time in that epoch.

    Sizes of the next epoch are in proportion to it.  There is no forecast, and no threshold.

    Args:
        epoch: iterations in an epoch; a data set of 50,000 in global batches of 512 has 98.
        predictor: for the record.

    Raises:
        ConfigurationError: ``epoch`` is less than 1.

    Source: Q. Ye, Y. Zhou, M. Shi, Y. Sun, J. Lv, "DBS: Dynamic Batch Size For Distributed Deep Neural Network
    Training", arXiv:2007.11831.
    """

    epoch: int = 100
    predictor: Predictor[Any] = LastValue()
    name: str = "dbs"

    def __post_init__(self) -> None:
        if self.epoch < 1:
            raise ConfigurationError(f"epoch={self.epoch}: must be 1 or more iterations")

    def init(self, problem: Problem) -> tuple[int, FloatArray, FloatArray]:
        """Iterations, samples and seconds of the epoch so far."""
        return 0, np.zeros(problem.workers), np.zeros(problem.workers)

    def propose(
        self, problem: Problem, state: tuple[int, FloatArray, FloatArray], reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, tuple[int, FloatArray, FloatArray]]:
        """Nothing but at an epoch's end."""
        count, samples, seconds = state[0] + 1, state[1] + reports.size, state[2] + reports.compute_s
        if count < self.epoch:
            return None, (count, samples, seconds)
        speeds = np.maximum(samples, 1) / seconds
        sizes = apportion(speeds, problem.global_batch_size, problem.bounds)
        before_s, after_s = float((current / speeds).max()), float((sizes / speeds).max())
        detail = f"an epoch of {self.epoch} iterations has ended: sizes follow its speeds"
        return Proposal(sizes, after_s, before_s, detail, weighed=True), self.init(problem)
