"""Backup workers: do not wait for the slowest b."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.errors import ConfigurationError
from lbbsp.sim.schemes._fixed import times_of
from lbbsp.sim.schemes.base import Job, Timeline, synchronous

__all__ = ["BackupWorkers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupWorkers:
    """An update takes the first W - b gradients; the others are cancelled and their samples drawn anew.

    So that an update still rests on X samples, each worker computes ``ceil(X / (W - b))`` and of the last that
    counts only what X lacks is used.  What is dropped is data of the slow workers: with data that differ between
    workers that would be a bias, which this simulation, with one common stream, does not show.

    Args:
        backups: b, at least 1 and less than W.

    Source: J. Chen, X. Pan, R. Monga, S. Bengio, R. Jozefowicz, "Revisiting Distributed Synchronous SGD",
    2016 (arXiv 1604.00981), section 3.
    """

    backups: int = 1

    @property
    def name(self) -> str:
        """With b."""
        return f"backup-{self.backups}"

    def run(self, job: Job) -> Timeline:
        """Simulate the job.

        Raises:
            ConfigurationError: b does not lie between 1 and W - 1, or the batch that this makes of a worker's
                breaks its bounds.
        """
        if not 1 <= self.backups < job.workers:
            raise ConfigurationError(
                f"backups={self.backups} with {job.workers} workers: must be between 1 and {job.workers - 1}"
            )
        counted = job.workers - self.backups
        each, bounds = -(-job.global_batch_size // counted), job.problem.bounds
        if int(bounds.hi.min()) < each:
            worker = int(bounds.hi.argmin())
            raise ConfigurationError(
                f"backups={self.backups}: each worker would process {each} samples, worker {worker} can take "
                f"{bounds.hi[worker]}; take fewer backups or a smaller global batch"
            )
        times = times_of(job.truth, np.full(job.workers, each), job.iterations)
        order = np.argsort(times, axis=1, kind="stable")
        shares = np.minimum(each, job.global_batch_size - each * np.arange(counted))
        shares = shares[shares > 0]  # with few samples each, not even W - b workers are needed
        sizes = np.zeros((job.iterations, job.workers), dtype=np.int64)
        np.put_along_axis(sizes, order[:, : shares.size], shares[None, :], axis=1)
        needed_s = np.take_along_axis(times, order[:, shares.size - 1 : shares.size], axis=1)[:, 0]
        wasted = job.iterations * (each * job.workers - job.global_batch_size)
        return synchronous(self.name, job, sizes, needed_s + job.communication_s, wasted=wasted)
