"""Sizes for GPU clusters from fitted time models."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbbsp.core.allocate import minmax
from lbbsp.core.fitted_times import fit
from lbbsp.core.policy.base import Problem, Proposal
from lbbsp.core.predict import AdaptiveEma, Predictor
from lbbsp.core.seen import Seen
from lbbsp.core.types import FloatArray, IntArray, Reports
from lbbsp.errors import ConfigurationError

__all__ = ["Fitted", "FittedState"]

_JUDGED_AFTER = 4.0
_NUMBERS = ("before_s", "promised_s", "caution", "least_s", "room")


def _room(problem: Problem) -> float:
    return float(np.minimum(problem.bounds.hi, problem.global_batch_size).sum())


@dataclass(frozen=True, slots=True)
class FittedState:
    """What was measured, and what the last move promised.

    Args:
        seen: mean times by size.
        before_s: slowest time before the last move, seconds; NaN once the move has been judged.
        promised_s: what the move was to bring it to.
        caution: >= 1, factor on the gain that a move needs; doubled by each move that did not keep half its promise.
        least_s: the least slowest time by the last fit, if that fit was for the sizes in force; else NaN.
        fitted_y: the mean times then, seconds, shape ``(W,)``.
        room: the sum of the upper bounds then, samples; learned memory caps come and go.
    """

    seen: Seen
    before_s: float
    promised_s: float
    caution: float
    least_s: float
    fitted_y: FloatArray
    room: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Fit ``max(s, a + b x)`` to each worker and solve for the least slowest time, exactly.

    The first guess, before sizes differ, is time in proportion to the batch.  Each move shows every worker at another
    size, and two sizes tell fixed cost and slope apart.  Beyond the largest size that a worker has run its time is
    taken to grow in proportion, which no fixed cost and no flat part exceeds: trying a size costs no more than was
    expected.  Single slow iterations are clipped, lasting changes are met within a few (`lbbsp.core.seen.Seen`).
    Moves that do not keep half of what they promised make the policy twice as cautious, until a worker changes.

    Args:
        certainty: a move must gain this many standard errors of the slowest worker's mean time (beside the dead
            band), so that noise alone moves nothing; smaller is quicker to follow small changes, and restless.
        elasticity_spread: how readily a slope other than "in proportion" is believed; see
            `lbbsp.core.fitted_times.fit`.
        predictor: for the forecasts in the record; the fit uses measured times.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    certainty: float = 2.0
    elasticity_spread: float = 0.5
    predictor: Predictor[Any] = AdaptiveEma()
    name: str = "fitted"

    def __post_init__(self) -> None:
        if not 0 <= self.certainty < math.inf:
            raise ConfigurationError(f"certainty={self.certainty}: must be 0 or more standard errors")
        if not 0 < self.elasticity_spread < math.inf:
            raise ConfigurationError(f"elasticity_spread={self.elasticity_spread}: must be positive")

    def init(self, problem: Problem) -> FittedState:
        """Nothing seen."""
        return FittedState(
            Seen.nothing(problem.workers), math.nan, math.nan, 1.0, math.nan, np.ones(problem.workers), 0.0
        )

    def propose(
        self, problem: Problem, state: FittedState, reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, FittedState]:
        """Learn from the reports, fit, solve."""
        seen, changed = state.seen.observe(reports.size.astype(np.float64), reports.compute_s)
        state = self._judged(replace(state, seen=seen), changed=changed)
        known = not math.isnan(state.least_s) and state.room == _room(problem)
        if known and not np.count_nonzero(reports.size != current):
            # If every worker's times have at most fallen by the least of these ratios, so has the least slowest time.
            before_s, least_s = self._slowest(seen.y)[1], state.least_s * float((seen.y / state.fitted_y).min())
            if before_s - least_s <= self._needed_s(problem, state, seen.y):
                detail = f"the slowest takes {before_s:.4g} s; no sizes are expected to bring it below {least_s:.4g} s"
                return Proposal(current, before_s, before_s, detail), state
        return self._solved(problem, state, current)

    @staticmethod
    def _slowest(times_s: FloatArray) -> tuple[int, float]:
        slowest = int(times_s.argmax())
        return slowest, float(times_s[slowest])

    def _needed_s(self, problem: Problem, state: FittedState, times_s: FloatArray) -> float:
        """The gain that a move must bring, seconds: more than noise can feign, and more than the dead band."""
        slowest, before_s = self._slowest(times_s)
        error = float(state.seen.noise[slowest]) / math.sqrt(max(float(state.seen.n[slowest]), 1.0))
        return state.caution * before_s * max(self.certainty * error, problem.dead_band.min_gain)

    def _solved(self, problem: Problem, state: FittedState, current: IntArray) -> tuple[Proposal, FittedState]:
        models = fit(state.seen, elasticity_spread=self.elasticity_spread)
        now = models.time_s(current)
        slowest, before_s = self._slowest(now)
        sizes = minmax(models, problem.global_batch_size, problem.bounds)
        after_s = float(models.time_s(sizes).max())
        needed_s = self._needed_s(problem, state, now)
        if before_s - after_s <= needed_s:
            detail = (
                f"worker {slowest} is the slowest at {before_s:.4g} s; {after_s:.4g} s would be possible, "
                f"a gain of less than the {needed_s:.2g} s that a move must bring"
            )
            state = replace(state, least_s=after_s, fitted_y=state.seen.y, room=_room(problem))
            return Proposal(current, before_s, before_s, detail, models=models), state
        detail = (
            f"worker {slowest} is the slowest at {before_s:.4g} s for {current[slowest]} samples; by the fitted times "
            f"{sizes[slowest]} samples and {after_s:.4g} s are best"
        )
        state = replace(state, before_s=before_s, promised_s=after_s, least_s=math.nan)
        return Proposal(sizes, after_s, before_s, detail, models=models), state

    @staticmethod
    def _judged(state: FittedState, *, changed: bool) -> FittedState:
        """Compare the last move with its promise, once its sizes have been measured a few times."""
        if changed:
            return replace(state, before_s=math.nan, promised_s=math.nan, caution=1.0)
        if math.isnan(state.before_s) or float(state.seen.n.min()) < _JUDGED_AFTER:
            return state
        kept = state.before_s - float(state.seen.y.max()) >= (state.before_s - state.promised_s) / 2.0
        caution = max(1.0, state.caution / 2.0) if kept else min(8.0, state.caution * 2.0)
        return replace(state, before_s=math.nan, promised_s=math.nan, caution=caution)

    def dump(self, state: FittedState) -> dict[str, Any]:
        """Numbers and lists."""
        saved = {name: getattr(state, name) for name in _NUMBERS}
        return {
            **{name: None if math.isnan(value) else value for name, value in saved.items()},
            "seen": state.seen.dump(),
            "fitted_y": state.fitted_y.tolist(),
        }

    def load(self, saved: dict[str, Any]) -> FittedState:
        """From `dump`."""
        numbers = {name: math.nan if saved[name] is None else float(saved[name]) for name in _NUMBERS}
        return FittedState(seen=Seen.load(saved["seen"]), fitted_y=np.array(saved["fitted_y"]), **numbers)
