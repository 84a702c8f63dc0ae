"""The paper's policy for CPU clusters: sizes proportional to forecast speeds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lbbsp.core.allocate import minmax
from lbbsp.core.policy.base import Problem, Proposal
from lbbsp.core.predict import Mixture, Predictor
from lbbsp.core.time_models import LinearTimes
from lbbsp.core.types import IntArray, Reports
from lbbsp.errors import ConfigurationError

__all__ = ["Proportional"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportional:
    """``x_i`` proportional to the forecast speed, rounded so that the slowest expected time is least.

    Proportional sizing is the solution of ``min max_i x_i / v_i``; solving that in integers, by
    `lbbsp.core.allocate.minmax`, also says how to round: a largest-remainder rounding can leave the slowest
    worker a sample more than it need have.

    A worker that falls short of its forecast holds all others up, one that exceeds it gains nothing.  So each
    worker is sized for a speed that is ``risk`` spreads s_i, relative to the forecast v_i, below it:

        x_i proportional to v_i / (1 + risk s_i / v_i)

    Among workers that are equally uncertain this changes nothing; one that is less certain than others gets less.
    The expected times that decide on a move are those at these speeds.

    Args:
        predictor: of each worker's speed, and of its spread.
        risk: spreads of caution; 0 is the paper's rule.

    Raises:
        ConfigurationError: ``risk`` is negative or not finite.

    Source: Chen et al., SoCC 2020, section 3.3 (CPU clusters).
    """

    predictor: Predictor[Any] = field(default_factory=Mixture)
    risk: float = 0.75
    name: str = "proportional"

    def __post_init__(self) -> None:
        if not 0 <= self.risk < math.inf:
            raise ConfigurationError(f"risk={self.risk}: must be 0 or more spreads")

    def init(self, problem: Problem) -> None:
        """No state."""

    def propose(
        self, problem: Problem, state: None, reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, None]:
        """Solve for the forecast speeds in ``reports``."""
        v = reports.speed
        # fmin and fmax pass over NaN: what is no spread counts as none, what is absurd as ten times the speed.
        spread = np.fmin(np.fmax(reports.spread, 0.0), 10.0 * v)
        models = LinearTimes(v / (1.0 + self.risk * (spread / v)))
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
