"""What lbbsp chooses: sizes in proportion to forecast speeds, until the times tell of devices that work otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lbbsp.core.policy.base import Policy, Problem, Proposal
from lbbsp.core.policy.fitted import Fitted, FittedState
from lbbsp.core.policy.proportional import Proportional
from lbbsp.core.predict import Predictor
from lbbsp.core.seen import Seen
from lbbsp.core.types import FloatArray, IntArray, Reports
from lbbsp.errors import ConfigurationError

__all__ = ["Auto", "AutoState"]

_LEAST_CHANGE = 0.1
_LEAST_PAIRS = 6.0
_FORGET = 0.9
_ALL_OF_FIRST, _THEN_EVERY = 12, 8
_WINDOW = 30.0


@dataclass(frozen=True, slots=True)
class AutoState:
    """Where the choice stands.

    Args:
        fitted: the fitted policy's state; None while sizes are in proportion to speeds.
        evidence: of the regression: number of pairs, sums of dx dx, dx dt and dt dt; older moves weigh less.
        doubt: factor on the certainty asked for; doubled by each return to proportional sizes.
        errors: mean relative errors of the speeds' forecasts and of the fitted times, lately, and over how many
            iterations; while fitted.
        sizes: of the last reports, samples; shape ``(W,)``, empty before the first.
        times_s: of the last reports.
        speeds: forecast in the last reports, samples/s.
        why: the choice in words.
        moves: changes of sizes so far.
    """

    fitted: FittedState | None
    evidence: tuple[float, float, float, float]
    doubt: float
    errors: tuple[float, float, float]
    sizes: IntArray
    times_s: FloatArray
    speeds: FloatArray
    why: str
    moves: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    r"""`Proportional`, or `Fitted` once the times are seen to change less than the sizes do.

    Each move is an experiment: worker i's size changes by the fraction dx_i and its time, from one iteration to the
    next, by dt_i.  Over the workers and the last moves

        e = \sum dx dt / \sum dx^2

    is the elasticity of time in size: 1 where time is proportional to size (CPUs; then forecasts of speed are all
    that is needed), 0 for flat devices, between where steps have a fixed cost.  With its standard error s from the
    residuals, `Fitted` takes over when ``e + certainty s < below``.  Noisy and jumping speeds make s large and leave
    `Proportional` in charge.  If later the forecasts of speed predict the times clearly better than the fitted
    times do (speeds that change all the time), it goes back, and asks for twice the certainty next time.

    Every decision says which of the two it is from, and on what evidence.

    Args:
        below: elasticity under which time counts as not proportional to size.
        certainty: standard errors that it must be below.
        proportional: the one policy.
        fitted: the other.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    below: float = 0.9
    certainty: float = 2.5
    proportional: Policy[None] = field(default_factory=Proportional)
    fitted: Fitted = field(default_factory=Fitted)
    name: str = "auto"

    def __post_init__(self) -> None:
        if not 0 < self.below <= 1:
            raise ConfigurationError(f"below={self.below}: must lie in (0, 1], an elasticity")
        if not 0 < self.certainty < math.inf:
            raise ConfigurationError(f"certainty={self.certainty}: must be a positive number of standard errors")

    @property
    def predictor(self) -> Predictor[Any]:
        """The proportional policy's."""
        return self.proportional.predictor

    def init(self, problem: Problem) -> AutoState:
        """Proportional, without evidence."""
        none = np.zeros(0)
        why = "proportional: no sizes have been compared yet"
        return AutoState(None, (0.0, 0.0, 0.0, 0.0), 1.0, (0.0, 0.0, 0.0), none.astype(np.int64), none, none, why, 0)

    def propose(
        self, problem: Problem, state: AutoState, reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, AutoState]:
        """Weigh the evidence if sizes have changed, and leave the rest to the one or the other."""
        moves = state.moves
        if state.sizes.size and np.count_nonzero(reports.size != state.sizes):
            moves += 1
            # Where sizes move in each iteration, weighing each move would cost half as much as deciding it.
            if moves <= _ALL_OF_FIRST or moves % _THEN_EVERY == 0:
                state = self._weighed(problem, state, reports)
        if state.fitted is not None:
            state = self._compared(state, reports)
        inner: Proposal | None
        if state.fitted is None:
            inner, _ = self.proportional.propose(problem, None, reports, current)
            fitted = None
        else:
            inner, fitted = self.fitted.propose(problem, state.fitted, reports, current)
        after = AutoState(
            fitted,
            state.evidence,
            state.doubt,
            state.errors,
            reports.size,
            reports.compute_s,
            reports.speed,
            state.why,
            moves,
        )
        if inner is None:
            return None, after
        detail = f"{inner.detail} ({state.why})"
        return Proposal(
            inner.sizes, inner.expected_s, inner.expected_before_s, detail, inner.weighed, inner.models
        ), after

    def _weighed(self, problem: Problem, state: AutoState, reports: Reports) -> AutoState:
        """Add the changes since the last reports to the evidence, and change over if it suffices."""
        before = np.maximum(state.sizes, 1)
        dx = reports.size / before - 1.0
        chosen = (np.abs(dx) > _LEAST_CHANGE) & (state.sizes > 0) & (reports.size > 0)
        if not np.count_nonzero(chosen):
            return state
        dt = (reports.compute_s / state.times_s - 1.0)[chosen]
        dx = dx[chosen]
        new = (float(dx.size), *(math.fsum(p.tolist()) for p in (dx * dx, dx * dt, dt * dt)))
        count, xx, xt, tt = (_FORGET * old + more for old, more in zip(state.evidence, new, strict=True))
        state = replace(state, evidence=(count, xx, xt, tt))
        elasticity = xt / xx
        if count < _LEAST_PAIRS:
            return state
        error = math.sqrt(max(tt - elasticity * xt, 0.0) / ((count - 1.0) * xx))
        told = f"time against size has elasticity {elasticity:.2f} +- {error:.2f}"
        if state.fitted is not None:
            return replace(state, why=f"fitted times: {told}")
        if elasticity + state.doubt * self.certainty * error >= self.below:
            return replace(state, why=f"proportional: {told}")
        seen, _ = Seen.nothing(problem.workers).observe(state.sizes.astype(np.float64), state.times_s)
        start = replace(self.fitted.init(problem), seen=seen)
        return replace(state, fitted=start, errors=(0.0, 0.0, 0.0), why=f"fitted times: {told}")

    def _compared(self, state: AutoState, reports: Reports) -> AutoState:
        """Which predicted these times better, while sizes stay; go back to forecasts of speed if they do."""
        if state.fitted is None or np.count_nonzero(reports.size != state.fitted.seen.x):
            return state
        by_speed = np.abs(reports.size / (state.speeds * reports.compute_s) - 1.0)
        by_fit = np.abs(state.fitted.seen.y / reports.compute_s - 1.0)
        speed_error, fit_error, count = state.errors
        count = min(count + 1.0, _WINDOW)
        speed_error += (math.fsum(by_speed.tolist()) / by_speed.size - speed_error) / count
        fit_error += (math.fsum(by_fit.tolist()) / by_fit.size - fit_error) / count
        if count < _WINDOW or speed_error > 0.8 * fit_error:
            return replace(state, errors=(speed_error, fit_error, count))
        why = f"proportional: speeds' forecasts miss the times by {speed_error:.1%}, fitted times by {fit_error:.1%}"
        return replace(state, fitted=None, evidence=(0.0, 0.0, 0.0, 0.0), doubt=2.0 * state.doubt, why=why)

    def dump(self, state: AutoState) -> dict[str, Any]:
        """Numbers, lists and the words."""
        return {
            "fitted": None if state.fitted is None else self.fitted.dump(state.fitted),
            "evidence": list(state.evidence),
            "doubt": state.doubt,
            "errors": list(state.errors),
            "sizes": state.sizes.tolist(),
            "times_s": state.times_s.tolist(),
            "speeds": state.speeds.tolist(),
            "why": state.why,
            "moves": state.moves,
        }

    def load(self, saved: dict[str, Any]) -> AutoState:
        """From `dump`."""
        count, xx, xt, tt = (float(number) for number in saved["evidence"])
        by_speed, by_fit, window = (float(number) for number in saved["errors"])
        return AutoState(
            None if saved["fitted"] is None else self.fitted.load(saved["fitted"]),
            (count, xx, xt, tt),
            float(saved["doubt"]),
            (by_speed, by_fit, window),
            np.array(saved["sizes"], dtype=np.int64),
            np.array(saved["times_s"], dtype=np.float64),
            np.array(saved["speeds"], dtype=np.float64),
            str(saved["why"]),
            int(saved["moves"]),
        )
