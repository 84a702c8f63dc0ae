"""The paper's policy for GPU clusters: small steps from the straggler to the leader."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbbsp.core.allocate import Step, leader_straggler
from lbbsp.core.policy.base import Problem, Proposal
from lbbsp.core.predict import AdaptiveEma, Predictor
from lbbsp.core.types import FloatArray, IntArray, Reports
from lbbsp.errors import ConfigurationError

__all__ = ["LeaderStraggler", "LeaderStragglerState"]


@dataclass(frozen=True, slots=True)
class LeaderStragglerState:
    """Where the rule stands.

    Args:
        total_s: the sum of each worker's times in the open window, shape ``(W,)``.
        count: iterations in it.
        window: n, iterations that a window lasts now.
        step: delta, samples.
        last: straggler and leader of the last step; (-1, -1) for none.
        settled_at: the spread at which the rule stopped; NaN while it moves.
    """

    total_s: FloatArray
    count: int
    window: int
    step: int
    last: tuple[int, int]
    settled_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderStraggler:
    r"""Measure for n iterations, move delta samples from the straggler to the leader, repeat.

    Time against batch is flat and then linear on a GPU, so a speed tells little about another size; the rule asks
    for no model.  The *straggler* has the largest mean time in the window, the *leader* the least among those with
    memory to spare.  Where a step turns the tables (the last leader is the straggler now, or the last straggler the
    leader), the rule oscillates: delta is halved and the window lengthened.  It stops when the spread
    ``(t_straggler - t_leader) / t_straggler`` is within ``tolerance``, when the least step still oscillates, or when
    the straggler can give no more; it starts again, with the first delta and window, when the spread has grown by
    ``restart`` beyond where it stopped.

    Args:
        window: n, iterations; longer ones damp noise and slow the rule down.
        longest: the window grows to at most this; while the rule rests, it watches in windows of this length.
        step: the first delta as a fraction of the equal share X / W; larger is faster and oscillates sooner.
        tolerance: spread at which it stops; below the noise of a window's mean it cannot be reached.
        restart: growth of the spread at which it starts again.
        spare_memory: least available memory (fraction) of a leader, where workers report it.
        predictor: for the forecasts in the record; the rule uses measured times.

    Raises:
        ConfigurationError: a value is out of its range.

    Source: Chen et al., SoCC 2020, section 3.4 (GPU clusters).
    """

    window: int = 1
    longest: int = 16
    step: float = 0.35
    tolerance: float = 0.05
    restart: float = 0.1
    spare_memory: float = 0.05
    predictor: Predictor[Any] = AdaptiveEma()
    name: str = "leader-straggler"

    def __post_init__(self) -> None:
        if not 1 <= self.window <= self.longest:
            raise ConfigurationError(f"window={self.window}, longest={self.longest}: must hold 1 <= window <= longest")
        if not 0 < self.step <= 1:
            raise ConfigurationError(f"step={self.step}: must lie in (0, 1], a fraction of the equal share")
        for name in ("tolerance", "restart", "spare_memory"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigurationError(f"{name}={getattr(self, name)}: must lie in [0, 1)")

    def init(self, problem: Problem) -> LeaderStragglerState:
        """An open window, the first delta."""
        g = problem.bounds.granularity
        step = max(g, int(self.step * problem.global_batch_size / problem.workers) // g * g)
        return LeaderStragglerState(np.zeros(problem.workers), 0, self.window, step, (-1, -1), math.nan)

    def propose(
        self, problem: Problem, state: LeaderStragglerState, reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, LeaderStragglerState]:
        """A step at the end of a window, nothing before it."""
        if np.count_nonzero(reports.size != current):  # a short batch, or sizes that are still on their way
            return None, replace(state, total_s=np.zeros(problem.workers), count=0)
        resting = not math.isnan(state.settled_at)
        state = replace(state, total_s=state.total_s + reports.compute_s, count=state.count + 1)
        if state.count < (self.longest if resting else state.window):
            return None, state
        means = state.total_s / state.count
        state = replace(state, total_s=np.zeros(problem.workers), count=0)
        if resting:
            step = self._step(problem, state, reports, current, means)
            if step.spread <= max(state.settled_at, self.tolerance) + self.restart:
                return None, state
            state = self.init(problem)
        return self._next(problem, state, reports, current, means)

    def _step(
        self, problem: Problem, state: LeaderStragglerState, reports: Reports, current: IntArray, means: FloatArray
    ) -> Step:
        spare = ~(reports.memory < self.spare_memory)  # a worker that reports no memory (NaN) has some
        return leader_straggler(means, current, state.step, problem.bounds, spare)

    def _next(
        self, problem: Problem, state: LeaderStragglerState, reports: Reports, current: IntArray, means: FloatArray
    ) -> tuple[Proposal | None, LeaderStragglerState]:
        step = self._step(problem, state, reports, current, means)
        least = problem.bounds.granularity
        if step.leader is not None and (step.straggler == state.last[1] or step.leader == state.last[0]):
            if state.step == least:
                return None, replace(state, settled_at=step.spread, last=(-1, -1))
            half = max(least, state.step // 2 // least * least)
            longer = min(self.longest, state.window + 1)
            state = replace(state, step=half, window=longer)
            step = self._step(problem, state, reports, current, means)
        if step.leader is None or step.moved == 0 or step.spread <= self.tolerance:
            return None, replace(state, settled_at=step.spread, last=(-1, -1))
        before_s = float(means[step.straggler])
        scaled = means * step.sizes / np.maximum(current, 1)
        detail = (
            f"worker {step.straggler} is the straggler at {before_s:.4g} s and worker {step.leader} the leader at "
            f"{float(means[step.leader]):.4g} s, means of {state.window} iterations: {step.moved} samples move"
        )
        proposal = Proposal(step.sizes, float(scaled.max()), before_s, detail, weighed=True)
        return proposal, replace(state, last=(step.straggler, step.leader))

    def dump(self, state: LeaderStragglerState) -> dict[str, Any]:
        """Numbers and lists."""
        return {
            "total_s": state.total_s.tolist(),
            "count": state.count,
            "window": state.window,
            "step": state.step,
            "last": list(state.last),
            "settled_at": None if math.isnan(state.settled_at) else state.settled_at,
        }

    def load(self, saved: dict[str, Any]) -> LeaderStragglerState:
        """From `dump`."""
        return LeaderStragglerState(
            np.array(saved["total_s"], dtype=np.float64),
            int(saved["count"]),
            int(saved["window"]),
            int(saved["step"]),
            (int(saved["last"][0]), int(saved["last"][1])),
            math.nan if saved["settled_at"] is None else float(saved["settled_at"]),
        )
