"""The equal policy: never moves; plain BSP with balancing's measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lbbsp.core.policy.base import Problem, Proposal
from lbbsp.core.predict import AdaptiveEma, Predictor
from lbbsp.core.types import IntArray, Reports

__all__ = ["Equal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equal:
    """Keep the equal split."""

    predictor: Predictor[Any] = AdaptiveEma()
    name: str = "equal"

    def init(self, problem: Problem) -> None:
        """No state."""

    def propose(
        self, problem: Problem, state: None, reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, None]:
        """No proposal."""
        return None, None
