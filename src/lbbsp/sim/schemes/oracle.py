"""The clairvoyant split: the best whole sizes for the true time models of each iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.sim.bsp import Clairvoyant
from lbbsp.sim.schemes._fixed import times_of
from lbbsp.sim.schemes.base import Job, Timeline, synchronous

__all__ = ["Oracle"]


@dataclass(frozen=True, slots=True)
class Oracle:
    """What no scheme that keeps BSP's mathematics can beat, but for luck with noise, which it cannot foresee."""

    name: str = "oracle"

    def run(self, job: Job) -> Timeline:
        """Simulate the job."""
        clairvoyant = Clairvoyant(job.truth, job.global_batch_size, job.problem.bounds)
        sizes = np.stack([clairvoyant.split(k)[0] for k in range(job.iterations)])
        times = times_of(job.truth, sizes, job.iterations)
        return synchronous(self.name, job, sizes, times.max(axis=1) + job.communication_s)
