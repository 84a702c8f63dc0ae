"""The paper's policy for CPU clusters: sizes proportional to forecast speeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lbbsp.core.allocate import minmax
from lbbsp.core.policy.base import Problem, Proposal
from lbbsp.core.predict import AdaptiveEma, Predictor
from lbbsp.core.time_models import LinearTimes
from lbbsp.core.types import IntArray, Reports

__all__ = ["Proportional"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportional:
    """``x_i`` proportional to the forecast speed, rounded so that the slowest expected time is least.

    Proportional sizing is the solution of ``min max_i x_i / v_i``; solving that in integers, by
    `lbbsp.core.allocate.minmax`, also says how to round: a largest-remainder rounding can leave the slowest
    worker a sample more than it need have.

    Args:
        predictor: of each worker's speed.

    Source: Chen et al., SoCC 2020, section 3.3 (CPU clusters).
    """

    predictor: Predictor[Any] = AdaptiveEma()
    name: str = "proportional"

    def init(self, problem: Problem) -> None:
        """No state."""

    def propose(
        self, problem: Problem, state: None, reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, None]:
        """Solve for the forecast speeds in ``reports``."""
        models = LinearTimes(reports.speed)
        before = models.time_s(current)
        slowest = int(before.argmax())
        before_s = float(before[slowest])
        least_s = problem.global_batch_size / math.fsum(models.speeds.tolist())
        if not problem.dead_band.worth(before_s, least_s):
            detail = f"the slowest is forecast to take {before_s:.4g} s; no sizes bring it below {least_s:.4g} s"
            return Proposal(current, before_s, before_s, detail), None
        sizes = minmax(models, problem.global_batch_size, problem.bounds)
        after_s = float(models.time_s(sizes).max())
        detail = (
            f"worker {slowest} is forecast the slowest at {before_s:.4g} s for {current[slowest]} samples; "
            f"with {sizes[slowest]} the slowest takes {after_s:.4g} s"
        )
        return Proposal(sizes, after_s, before_s, detail), None
