"""What a scheme of distributed training comes to: when which worker's gradient enters which update.

A scheme is about time alone.  Its `Timeline` says of every gradient when it was applied, to how many samples it
belongs and which version of the parameters it was computed on; `lbbsp.sim.training` then computes those very
gradients.  So the clock and the mathematics are apart, and each can be tested by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from lbbsp.core.policy import Problem
from lbbsp.core.types import Bounds, FloatArray, IntArray
from lbbsp.errors import ConfigurationError
from lbbsp.sim.bsp import Outcome, Truth

__all__ = ["Gradients", "Job", "Scheme", "Timeline", "checked_share", "synchronous"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """What is trained on which cluster.

    Args:
        truth: the cluster.
        global_batch_size: X, samples.
        iterations: K; a scheme without common iterations processes as many samples, K X.
        bounds: of the sizes; by default at least one sample each.
        communication_s: seconds that an update's exchange costs a worker: an all-reduce, or a pull and a push.
        message_s: seconds that a small message takes from worker to worker.

    Raises:
        ConfigurationError: a value is out of its range.
        InfeasibleBoundsError: no split of X satisfies the bounds.
    """

    truth: Truth
    global_batch_size: int
    iterations: int
    bounds: Bounds | None = None
    communication_s: float = 0.0
    message_s: float = 0.0
    problem: Problem = field(init=False)

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ConfigurationError(f"iterations={self.iterations}: must be 1 or more")
        for name in ("communication_s", "message_s"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ConfigurationError(f"{name}={getattr(self, name)}: must be 0 or more seconds")
        bounds = self.bounds or Bounds.default(self.truth.workers, self.global_batch_size)
        if bounds.workers != self.truth.workers:
            raise ConfigurationError(
                f"bounds of {bounds.workers} workers for a cluster of {self.truth.workers}; give one entry each"
            )
        object.__setattr__(self, "problem", Problem(self.global_batch_size, bounds))

    @property
    def workers(self) -> int:
        """W."""
        return self.truth.workers


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """P gradients in the order in which they were applied; arrays of shape ``(P,)``.

    Args:
        worker: which worker computed it.
        size: on how many samples.
        read: how many updates the parameters had seen that it was computed on.
        update: the update that it is part of, ascending from 0.
    """

    worker: IntArray
    size: IntArray
    read: IntArray
    update: IntArray

    @property
    def staleness(self) -> IntArray:
        """How many updates each gradient missed; 0 in synchronous training."""
        return np.asarray(self.update - self.read)


@dataclass(frozen=True, eq=False, kw_only=True)
class Timeline:
    """What a scheme came to: U updates, and the gradients in them.

    Args:
        scheme: its name.
        update_s: when each update was applied, seconds, ascending, shape ``(U,)``.
        samples: in all updates.
        global_batch_size: X, samples.
        list_gradients: lists the gradients; a large synchronous run has many, and not all who ask for its
            times want them.
        wasted: samples that were computed and thrown away.
        outcome: the synchronous simulation behind it, if there is one.
    """

    scheme: str
    update_s: FloatArray
    samples: int
    global_batch_size: int
    list_gradients: Callable[[], Gradients]
    wasted: int = 0
    outcome: Outcome | None = None

    @cached_property
    def gradients(self) -> Gradients:
        """In the order in which they were applied."""
        return self.list_gradients()

    @property
    def total_s(self) -> float:
        """Seconds of the whole run."""
        return float(self.update_s[-1])

    @property
    def batch_s(self) -> float:
        """Hardware efficiency: seconds that a global batch X of samples takes."""
        return self.total_s * self.global_batch_size / self.samples


class Scheme(Protocol):
    """A way to train on several workers."""

    @property
    def name(self) -> str:
        """The name in tables and on the command line."""
        ...

    def run(self, job: Job) -> Timeline:
        """Simulate the job."""
        ...


def synchronous(
    scheme: str, job: Job, sizes: IntArray, iteration_s: FloatArray, *, wasted: int = 0, outcome: Outcome | None = None
) -> Timeline:
    """The timeline of K updates at common boundaries, each with the gradients of all workers whose size is not 0.

    Args:
        scheme: its name.
        job: what was run.
        sizes: samples that count, shape ``(K, W)``.
        iteration_s: shape ``(K,)``.
        wasted: samples thrown away.
        outcome: the simulation behind it.
    """

    def gradients() -> Gradients:
        update, worker = (index.astype(np.int64) for index in np.nonzero(sizes))
        return Gradients(worker=worker, size=sizes[update, worker], read=update, update=update)

    return Timeline(
        scheme=scheme,
        update_s=np.cumsum(iteration_s),
        samples=int(sizes.sum()),
        global_batch_size=job.global_batch_size,
        list_gradients=gradients,
        wasted=wasted,
        outcome=outcome,
    )


def checked_share(name: str, value: float) -> None:
    """Raise ConfigurationError unless ``value`` lies in (0, 1]."""
    if not 0 < value <= 1:
        raise ConfigurationError(f"{name}={value}: must lie in (0, 1], a share of an iteration's work")
