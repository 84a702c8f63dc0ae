"""Policies for tests: fixed and pseudo-random allocations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbbsp import LastValue, Predictor
from lbbsp.core.allocate import apportion
from lbbsp.core.policy import Problem, Proposal
from lbbsp.core.types import IntArray, Reports


@dataclass(frozen=True)
class FixedSizes:
    """Always propose these sizes, as a sure gain."""

    sizes: tuple[int, ...]
    predictor: Predictor[Any] = LastValue()
    name: str = "fixed"

    def init(self, problem: Problem) -> None:
        """No state."""

    def propose(
        self, problem: Problem, state: None, reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, None]:
        """Propose them."""
        return Proposal(np.array(self.sizes), 0.1, 1.0, "the test says so"), None


@dataclass(frozen=True)
class RandomSizes:
    """Propose other sizes each time, within the bounds."""

    seed: int = 0
    predictor: Predictor[Any] = LastValue()
    name: str = "random"

    def init(self, problem: Problem) -> int:
        """The number of proposals so far."""
        return 0

    def propose(self, problem: Problem, state: int, reports: Reports, current: IntArray) -> tuple[Proposal | None, int]:
        """Weights drawn from (seed, state)."""
        weights = np.random.default_rng([self.seed, state]).exponential(size=problem.workers) + 1e-3
        sizes = apportion(weights, problem.global_batch_size, problem.bounds)
        return Proposal(sizes, 0.1, 1.0, "the test says so"), state + 1


def policy_of(sizes: Sequence[int] | int) -> FixedSizes | RandomSizes:
    """Fixed sizes for a sequence, random ones for a seed."""
    return RandomSizes(sizes) if isinstance(sizes, int) else FixedSizes(tuple(sizes))
