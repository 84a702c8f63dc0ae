"""Few batch shapes: for compilers and for cuDNN, to which each new batch size is a new program."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbbsp.core.policy.base import Policy, Problem, Proposal, Resumable
from lbbsp.core.predict import Predictor
from lbbsp.core.time_models import LinearTimes
from lbbsp.core.types import IntArray, Reports
from lbbsp.errors import ConfigurationError

__all__ = ["FewShapes", "FewShapesState"]


@dataclass(frozen=True, slots=True)
class FewShapesState:
    """The allocations used so far, and the inner policy's state."""

    used: tuple[tuple[int, ...], ...]
    inner: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FewShapes:
    """Let another policy use at most ``most`` allocations in a run, so that each worker sees at most so many sizes.

    A new allocation must earn back what new shapes cost; one that was used before costs nothing.  When ``most`` have
    been used, the best of them for the inner policy's time models is taken, so balancing goes on, only more coarsely.
    The short last batch of an epoch is a shape of its own, which no policy can spare.

    Args:
        policy: proposes sizes.
        most: K, allocations in a run, the equal split that it starts with included.
        cost_s: seconds that a new shape costs each time (a recompilation, cuDNN's search).
        horizon: iterations within which a move to new shapes must have earned its cost.

    Raises:
        ConfigurationError: ``most`` is less than 2, a cost negative, or the horizon less than 1.
    """

    policy: Policy[Any]
    most: int = 8
    cost_s: float = 0.0
    horizon: int = 1000

    def __post_init__(self) -> None:
        if self.most < 2:
            raise ConfigurationError(f"most={self.most}: must be 2 or more allocations; with 1 take policy='equal'")
        if not 0 <= self.cost_s < math.inf:
            raise ConfigurationError(f"cost_s={self.cost_s}: must be 0 or more seconds")
        if self.horizon < 1:
            raise ConfigurationError(f"horizon={self.horizon}: must be 1 or more iterations")

    @property
    def name(self) -> str:
        """The inner name and the number."""
        return f"{self.policy.name}, {self.most} shapes"

    @property
    def predictor(self) -> Predictor[Any]:
        """The inner policy's."""
        return self.policy.predictor

    def init(self, problem: Problem) -> FewShapesState:
        """None used."""
        return FewShapesState((), self.policy.init(problem))

    def propose(
        self, problem: Problem, state: FewShapesState, reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, FewShapesState]:
        """The inner proposal if it is known or may be new, else the best of those used."""
        inner = self.policy.init(problem) if state.inner is None else state.inner
        proposal, inner = self.policy.propose(problem, inner, reports, current)
        now = tuple(current.tolist())
        used = state.used if now in state.used else (*state.used, now)
        state = FewShapesState(used, inner)
        if proposal is None:
            return None, state
        wanted = tuple(proposal.sizes.tolist())
        if wanted in used:
            return proposal, state
        gain_s = proposal.expected_before_s - proposal.expected_s
        if len(used) < self.most and (self.cost_s == 0 or gain_s * self.horizon > self.cost_s):
            return proposal, state
        return self._best(problem, proposal, reports, current, used), state

    def _best(
        self,
        problem: Problem,
        proposal: Proposal,
        reports: Reports,
        current: IntArray,
        used: tuple[tuple[int, ...], ...],
    ) -> Proposal:
        # Memory caps may have been learned since: shapes beyond them are used no more.
        fitting = [sizes for sizes in used if problem.bounds.admit(np.array(sizes), problem.global_batch_size)]
        models = proposal.models or LinearTimes(reports.speed)
        slowest = [float(models.time_s(np.array(sizes)).max()) for sizes in fitting]
        best = min(range(len(fitting)), key=slowest.__getitem__)
        before_s = float(models.time_s(current).max())
        if slowest[best] >= before_s:
            why = f"{len(used)} of {self.most} shapes are in use, and none is better for {before_s:.4g} s"
            return Proposal(current, before_s, before_s, why, models=models)
        why = f"the best of the {len(used)} shapes in use: {before_s:.4g} s would become {slowest[best]:.4g} s"
        return replace(
            proposal,
            sizes=np.array(fitting[best]),
            expected_s=slowest[best],
            expected_before_s=before_s,
            detail=why,
            weighed=False,
        )

    def dump(self, state: FewShapesState) -> dict[str, Any]:
        """The used allocations, and the inner state where it can be kept."""
        inner = self.policy.dump(state.inner) if isinstance(self.policy, Resumable) else None
        return {"used": [list(sizes) for sizes in state.used], "inner": inner}

    def load(self, saved: dict[str, Any]) -> FewShapesState:
        """From `dump`; an inner policy that keeps nothing starts anew."""
        inner = self.policy.load(saved["inner"]) if isinstance(self.policy, Resumable) else None
        return FewShapesState(tuple(tuple(int(x) for x in sizes) for sizes in saved["used"]), inner)
