"""A parameter server with bounded staleness, event by event."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np

from lbbsp.core.allocate import equal_split
from lbbsp.errors import MissingDependencyError
from lbbsp.sim.schemes._fixed import times_of
from lbbsp.sim.schemes.base import Gradients, Job, Timeline

__all__ = ["Log", "Turnstile", "new_environment", "run_server"]


def new_environment() -> Any:
    """A simpy environment.

    Raises:
        MissingDependencyError: simpy is not installed.
    """
    try:
        import simpy
    except ImportError as error:
        raise MissingDependencyError(
            'asynchronous schemes need simpy, which is not installed: pip install "lbbsp[sim]"'
        ) from error
    return simpy.Environment()


class Log:
    """Gradients as they arrive until K X samples are in; ``per_update`` of them, in turn, make an update.

    That is one where each is applied as it comes, and all W where a barrier makes them one update of BSP.
    """

    def __init__(self, environment: Any, job: Job, per_update: int = 1) -> None:
        self.environment, self.wanted = environment, job.iterations * job.global_batch_size
        self.per_update = per_update
        self.rows: list[tuple[int, int, int]] = []
        self.at_s: list[float] = []
        self.samples = 0
        self.full = environment.event()

    @property
    def version(self) -> int:
        """Updates applied so far."""
        return len(self.rows) // self.per_update

    def push(self, worker: int, size: int, read: int) -> None:
        """A gradient is here."""
        if self.samples >= self.wanted:
            return
        self.rows.append((worker, size, read))
        self.at_s.append(self.environment.now)
        self.samples += size
        if self.samples >= self.wanted:
            self.full.succeed()

    def timeline(self, scheme: str, job: Job) -> Timeline:
        """What was logged."""
        worker, size, read = np.array(self.rows, dtype=np.int64).T
        gradients = Gradients(worker=worker, size=size, read=read, update=np.arange(worker.size) // self.per_update)
        return Timeline(
            scheme=scheme,
            update_s=np.array(self.at_s)[self.per_update - 1 :: self.per_update],
            samples=self.samples,
            global_batch_size=job.global_batch_size,
            list_gradients=lambda: gradients,
        )


class Turnstile:
    """Lets a worker begin its iteration c when the slowest has ended iteration ``c - s - 1``."""

    def __init__(self, environment: Any, workers: int, staleness: float) -> None:
        self._environment, self._staleness = environment, staleness
        self.clock = [0] * workers
        self._slowest = 0
        self._waiting: list[tuple[int, Any]] = []

    def enter(self, worker: int) -> Any:
        """An event that happens when ``worker`` may begin its next iteration."""
        event = self._environment.event()
        if self.clock[worker] - self._slowest <= self._staleness:
            event.succeed()
        else:
            self._waiting.append((self.clock[worker], event))
        return event

    def done(self, worker: int) -> None:
        """``worker`` has ended an iteration."""
        self.clock[worker] += 1
        slowest = min(self.clock)
        if slowest == self._slowest:
            return
        self._slowest = slowest
        still = []
        for clock, event in self._waiting:
            if clock - slowest <= self._staleness:
                event.succeed()
            else:
                still.append((clock, event))
        self._waiting = still


def run_server(scheme: str, job: Job, staleness: float = math.inf) -> Timeline:
    """Each worker in a loop of its own: pull, compute the equal share, push; at most s iterations ahead.

    A pull and a push take half of ``communication_s`` each.  A worker's j-th iteration takes the truth's times of
    iteration ``j mod K``: who runs ahead of the truth's end meets its beginning again.

    Args:
        scheme: the name.
        job: what to run.
        staleness: s, iterations; infinite for no bound, 0 for a barrier after each.
    """
    environment = new_environment()
    sizes = equal_split(job.global_batch_size, job.problem.bounds)
    times = times_of(job.truth, sizes, job.iterations)
    barrier = int(np.count_nonzero(sizes)) if staleness == 0 else 1
    log, turnstile = Log(environment, job, barrier), Turnstile(environment, job.workers, staleness)

    def work(worker: int) -> Generator[Any, Any, None]:
        size, half_s = int(sizes[worker]), job.communication_s / 2
        while size:
            yield turnstile.enter(worker)
            yield environment.timeout(half_s)
            read = log.version
            yield environment.timeout(times[turnstile.clock[worker] % job.iterations, worker] + half_s)
            log.push(worker, size, read)
            turnstile.done(worker)

    for worker in range(job.workers):
        environment.process(work(worker))
        if not sizes[worker]:
            turnstile.clock[worker] = 2**62  # has nothing to do, so nobody waits for it
    turnstile._slowest = min(turnstile.clock)
    environment.run(until=log.full)
    return log.timeline(scheme, job)
