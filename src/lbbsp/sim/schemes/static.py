"""A static split: sizes proportional to speeds measured once, at the start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.core.allocate import equal_split, minmax
from lbbsp.core.time_models import LinearTimes
from lbbsp.errors import ConfigurationError
from lbbsp.sim.schemes._fixed import times_of
from lbbsp.sim.schemes.base import Job, Timeline, synchronous

__all__ = ["Static"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """The equal split for ``measured`` iterations, then for good the best split for the mean speeds seen.

    Args:
        measured: iterations that the speeds are taken from.

    Raises:
        ConfigurationError: ``measured`` is less than 1.
    """

    measured: int = 5
    name: str = "static"

    def __post_init__(self) -> None:
        if self.measured < 1:
            raise ConfigurationError(f"measured={self.measured}: must be 1 or more iterations")

    def run(self, job: Job) -> Timeline:
        """Simulate the job."""
        first = min(self.measured, job.iterations)
        equal = equal_split(job.global_batch_size, job.problem.bounds)
        sizes = np.tile(equal, (job.iterations, 1))
        spent_s = times_of(job.truth, equal, first).sum(axis=0)
        known = (equal > 0) & (spent_s > 0)
        if known.all():
            models = LinearTimes(first * equal / spent_s)
            sizes[first:] = minmax(models, job.global_batch_size, job.problem.bounds)
        times = times_of(job.truth, sizes, job.iterations)
        return synchronous(self.name, job, sizes, times.max(axis=1) + job.communication_s)
