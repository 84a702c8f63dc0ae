"""The policy contract: from the reports of all workers to a proposal, by the same steps on every rank.

A policy has two halves.  Its ``predictor`` runs beside each worker, so that prediction costs a rank the same
whatever W is; its `propose` runs on every rank (or in the manager) over the gathered reports, in which the
predictors' forecasts travel.  `propose` must be a pure function of its arguments made of exact integer or
single IEEE operations in a fixed order (no sums of floats but by ``math.fsum``, no transcendental functions),
so that all ranks hold the same bits (I5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from lbbsp.core.allocate.dead_band import DeadBand
from lbbsp.core.predict.base import Predictor
from lbbsp.core.time_models import TimeModels
from lbbsp.core.types import Bounds, IntArray, Reports
from lbbsp.errors import ConfigurationError

__all__ = ["Policy", "Problem", "Proposal", "Resumable"]

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Problem:
    """What has to be solved: the global batch X and the bounds of the W workers.

    Args:
        global_batch_size: X, samples.
        bounds: of each worker's size.
        dead_band: what a move must gain; a policy may use it to save itself the search for one that gains less.

    Raises:
        InfeasibleBoundsError: no allocation of X exists.
        ConfigurationError: X is less than 1 sample, or more than can be handled.
    """

    global_batch_size: int
    bounds: Bounds
    dead_band: DeadBand = field(default_factory=DeadBand)

    def __post_init__(self) -> None:
        if self.global_batch_size < 1:
            raise ConfigurationError(f"global_batch_size={self.global_batch_size}: must be 1 or more samples")
        self.bounds.in_units(self.global_batch_size)

    @property
    def workers(self) -> int:
        """W."""
        return self.bounds.workers


@dataclass(frozen=True, slots=True)
class Proposal:
    """Sizes that a policy would take, and what it expects of them.

    Args:
        sizes: x, shape ``(W,)``.
        expected_s: expected slowest compute time with ``sizes``, seconds.
        expected_before_s: the same with the sizes in force.
        detail: why, in one sentence with its numbers.
        weighed: the policy has weighed the move's gain against its cost itself, so the dead band has no say: for
            rules whose single step gains nothing yet (several equal stragglers) or that go on trial.
        models: the time models behind the expectations, where there are some; wrappers may compare sizes by them.
    """

    sizes: IntArray
    expected_s: float
    expected_before_s: float
    detail: str
    weighed: bool = False
    models: TimeModels | None = None


class Policy(Protocol[State]):
    """Sizes the workers' batches."""

    @property
    def name(self) -> str:
        """The name in logs and on the command line."""
        ...

    @property
    def predictor(self) -> Predictor[Any]:
        """What each worker forecasts its speed with."""
        ...

    def init(self, problem: Problem) -> State:
        """The state before the first reports."""
        ...

    def propose(
        self, problem: Problem, state: State, reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, State]:
        """A proposal from one iteration's ``reports``, given the sizes in force; None for none.

        It is only called with reports whose speeds are all finite and positive.
        """
        ...


@runtime_checkable
class Resumable(Protocol[State]):
    """A policy whose state goes into checkpoints; one without these methods starts anew after a restart."""

    def dump(self, state: State) -> dict[str, Any]:
        """The state as plain values: numbers, strings, None, and lists and dicts of them."""
        ...

    def load(self, saved: dict[str, Any]) -> State:
        """The state from what `dump` gave."""
        ...
