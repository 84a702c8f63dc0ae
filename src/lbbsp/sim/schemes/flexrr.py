"""FlexRR-style work reassignment: who is done helps who is behind, in the middle of the iteration."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbbsp.core.allocate import equal_split
from lbbsp.core.types import FloatArray, IntArray
from lbbsp.errors import ConfigurationError
from lbbsp.sim.schemes._fixed import times_of
from lbbsp.sim.schemes._server import Log, Turnstile, new_environment
from lbbsp.sim.schemes.base import Job, Timeline, checked_share

__all__ = ["FlexRr"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlexRr:
    """Bounded staleness, and peers that take over work in small pieces.

    A worker that has ended its own share tells the workers that it may help.  One that has more than ``trigger``
    of its iteration left hands over a small first piece, and, as long as it stays that far behind, larger ones,
    each told ahead of time so that the helper need not wait between them.  The helper returns each result by a
    message; the helpee's gradient is complete when the last is back.  A first piece costs the helper a round trip
    of messages, every result one message.

    Args:
        staleness: s, iterations; 0 for a barrier after each.
        trigger: share of an iteration that a worker must be behind by to be helped.
        first: share of an iteration's work in a helper's first piece.
        then: share in each later piece.
        group: how many workers each may help: the next ranks, in a ring.

    Raises:
        ConfigurationError: a value is out of its range.

    Source: A. Harlap et al., "Addressing the straggler problem for iterative convergent parallel ML", SoCC 2016,
    (RapidReassignment), with its settings of 20%, 2.5% and 5%.  Simplified here: progress is reported
    at the end of a worker's share only, and a helper's pieces are computed on the helpee's parameters.
    """

    staleness: int = 0
    trigger: float = 0.2
    first: float = 0.025
    then: float = 0.05
    group: int = 8

    def __post_init__(self) -> None:
        for name in ("trigger", "first", "then"):
            checked_share(name, getattr(self, name))
        if self.staleness < 0:
            raise ConfigurationError(f"staleness={self.staleness}: must be 0 or more iterations")
        if self.group < 1:
            raise ConfigurationError(f"group={self.group}: must be 1 or more workers to help")

    @property
    def name(self) -> str:
        """With s, where there is one."""
        return f"flexrr-{self.staleness}" if self.staleness else "flexrr"

    def run(self, job: Job) -> Timeline:
        """Simulate the job, all workers with equal shares.

        Raises:
            ConfigurationError: a worker has no samples, or its time is not proportional to them: then a piece would
                not cost its part of an iteration.
        """
        return _Run(self, job).timeline()


def _check_proportional(job: Job, sizes: IntArray) -> None:
    models = job.truth.models(0)
    once, twice = models.time_s(sizes), models.time_s(2 * sizes)
    for worker in np.flatnonzero(np.abs(twice - 2 * once) > 0.01 * once)[:1]:
        raise ConfigurationError(
            f"work reassignment cuts an iteration into samples, but worker {worker} takes {once[worker]:.4g} s for "
            f"{sizes[worker]} and {twice[worker]:.4g} s for twice as many; leave flexrr out for such workers"
        )


class _Run:
    """The state of one simulation; all work is counted in samples."""

    def __init__(self, rules: FlexRr, job: Job) -> None:
        self.rules, self.job = rules, job
        self.environment = new_environment()
        self.sizes: IntArray = equal_split(job.global_batch_size, job.problem.bounds)
        if int(self.sizes.min()) < 1:
            raise ConfigurationError("a worker without samples cannot be helped; raise the lower bounds to 1")
        _check_proportional(job, self.sizes)
        self.times: FloatArray = times_of(job.truth, self.sizes, job.iterations)
        self.log = Log(self.environment, job, 1 if rules.staleness else job.workers)
        self.turnstile = Turnstile(self.environment, job.workers, rules.staleness)
        self.left = [0] * job.workers  # not begun, by anybody
        self.out = [0] * job.workers  # pieces that helpers have
        self.back: list[Any] = [None] * job.workers

    def timeline(self) -> Timeline:
        for worker in range(self.job.workers):
            self.environment.process(self._work(worker))
        self.environment.run(until=self.log.full)
        return self.log.timeline(self.rules.name, self.job)

    def _pace_s(self, worker: int) -> float:
        """Seconds a sample of ``worker``, in its present iteration."""
        k = self.turnstile.clock[worker] % self.job.iterations
        return float(self.times[k, worker] / self.sizes[worker])

    def _work(self, worker: int) -> Generator[Any, Any, None]:
        size, half_s = int(self.sizes[worker]), self.job.communication_s / 2
        piece = max(1, round(self.rules.first * size))
        while True:
            entered = self.turnstile.enter(worker)
            while not entered.triggered and (helpee := self._behind(worker)) is not None:
                yield from self._help(worker, helpee, entered)
            yield entered
            yield self.environment.timeout(half_s)
            read, pace_s = self.log.version, self._pace_s(worker)
            self.left[worker] = size
            while self.left[worker]:
                mine = min(piece, self.left[worker])
                self.left[worker] -= mine
                yield self.environment.timeout(mine * pace_s)
            if self.out[worker]:
                self.back[worker] = self.environment.event()
                yield self.back[worker]
            yield self.environment.timeout(half_s)
            self.log.push(worker, size, read)
            self.turnstile.done(worker)

    def _behind(self, helper: int) -> int | None:
        """The worker of the helper's group with the largest share left, if that is above the trigger."""
        workers, sizes = self.job.workers, self.sizes
        others = [(helper + step) % workers for step in range(1, min(self.rules.group, workers - 1) + 1)]
        shares = [self.left[other] / sizes[other] for other in others]
        most = int(np.argmax(shares)) if shares else 0
        return others[most] if shares and shares[most] > self.rules.trigger else None

    def _help(self, helper: int, helpee: int, entered: Any) -> Generator[Any, Any, None]:
        """Take pieces from ``helpee`` until it has caught up or the helper's own next iteration may begin."""
        message_s, size = self.job.message_s, int(self.sizes[helpee])
        yield self.environment.any_of([self.environment.timeout(2 * message_s), entered])
        share = self.rules.first
        while not entered.triggered and self.left[helpee] / size > self.rules.trigger:
            piece = min(max(1, round(share * size)), self.left[helpee])
            self.left[helpee] -= piece
            self.out[helpee] += 1
            yield self.environment.timeout(piece * self._pace_s(helper))
            self.environment.process(self._deliver(helpee))
            share = self.rules.then

    def _deliver(self, helpee: int) -> Generator[Any, Any, None]:
        yield self.environment.timeout(self.job.message_s)
        self.out[helpee] -= 1
        waiting = self.back[helpee]
        if not self.out[helpee] and waiting is not None and not waiting.triggered:
            waiting.succeed()
