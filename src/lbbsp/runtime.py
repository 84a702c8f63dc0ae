"""A worker's runtime: the engine's two halves joined by an exchange, one call at each end of an iteration.

Framework integrations drive it: `boundary` where all workers meet, `report` when the local compute of an
iteration ends.  It holds no framework and measures nothing itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbbsp.core.allocate import DeadBand
from lbbsp.core.cadence import Cadence
from lbbsp.core.policy import Policy, Problem
from lbbsp.core.types import Allocation, IntArray, Report
from lbbsp.engine import LEAST_PLAUSIBLE_S, MOST_PLAUSIBLE_S, Decision, Engine, Forecaster, Gathered, Measured
from lbbsp.errors import ConfigurationError
from lbbsp.exchange import Exchange

__all__ = ["Runtime", "Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the balancer behaves; all ranks must give the same.

    Args:
        observe_only: measure and propose, but leave the sizes alone.
        min_gain: least relative gain of the slowest expected time for which sizes move.
        move_cost_s: seconds that a move costs, to be earned back within 100 iterations.
        warm_up: first iterations whose times are discarded.
        time_limit_s: limit on each wait for the other ranks' reports, seconds.
        max_overhead: the fraction of the step time that reporting may cost once the sizes have settled, which sets
            how many iterations lie between reports; infinity for a report in every iteration.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    observe_only: bool = False
    min_gain: float = 0.02
    move_cost_s: float = 0.0
    warm_up: int = 1
    time_limit_s: float = 300.0
    max_overhead: float = 0.005

    def __post_init__(self) -> None:
        self.dead_band()
        self.cadence()
        if self.warm_up < 0:
            raise ConfigurationError(f"warm_up={self.warm_up}: must be 0 or more iterations")
        if not 0 < self.time_limit_s < math.inf:
            raise ConfigurationError(f"time_limit_s={self.time_limit_s}: must be a positive number of seconds")

    def dead_band(self) -> DeadBand:
        """The dead band that these settings describe."""
        return DeadBand(min_gain=self.min_gain, move_cost_s=self.move_cost_s)

    def cadence(self) -> Cadence:
        """The cadence of reports that these settings describe."""
        return Cadence(max_overhead=self.max_overhead)


@dataclass(slots=True)
class _Laps:
    """What was measured since the last report: the mean over the newest iterations of one size."""

    size: int = 0
    count: int = 0
    total_s: float = 0.0
    refused: tuple[int, float] = (0, math.nan)

    def add(self, size: int, seconds: float) -> None:
        """Take in an iteration; a time that cannot be believed is left out of the mean."""
        if not LEAST_PLAUSIBLE_S <= seconds <= MOST_PLAUSIBLE_S:
            self.refused = size, seconds
            return
        if size != self.size:
            self.size, self.count, self.total_s = size, 0, 0.0
        self.count += 1
        self.total_s += seconds

    def take(self) -> tuple[int, float]:
        """Size and mean seconds, or the newest that cannot be believed where there is no other; start anew."""
        taken = (self.size, self.total_s / self.count) if self.count else self.refused
        self.count, self.total_s, self.refused = 0, 0.0, (0, math.nan)
        return taken


class Runtime:
    """One rank's view of a balanced run.

    Args:
        exchange: to the other ranks.
        problem: X, W and all ranks' bounds.
        policy: how to size.
        lag: L, iterations between a report and the sizes that it decides.
        settings: the rest.
        on_decision: called with each decision, after it was made.
        clock: seconds, monotonic; enters decisions as their time, and what reporting costs.
    """

    def __init__(
        self,
        exchange: Exchange,
        problem: Problem,
        policy: Policy[Any],
        *,
        lag: int,
        settings: Settings,
        on_decision: Callable[[Decision], None] = lambda _: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.exchange, self.problem, self.lag = exchange, problem, lag
        self._on_decision, self._clock = on_decision, clock
        self.engine = Engine(
            problem,
            policy,
            lag=lag,
            warm_up=settings.warm_up,
            dead_band=settings.dead_band(),
            observe_only=settings.observe_only,
            cadence=settings.cadence(),
        )
        self.forecaster = Forecaster(policy.predictor, warm_up=settings.warm_up, lag=lag)
        self.last_decision: Decision | None = None
        self._reported: int | None = None
        self._laps = _Laps()
        self._cost_s = math.nan
        self._report_cost_s = 0.0

    @property
    def rank(self) -> int:
        """This worker's number."""
        return self.exchange.rank

    def report(
        self,
        iteration: int,
        size: int,
        compute_s: float,
        cpu: float = math.nan,
        memory: float = math.nan,
        cap: float = math.inf,
    ) -> None:
        """The local compute of ``iteration`` has ended: if a report is due start sending it; does not wait.

        Args:
            iteration: k.
            size: samples processed in ``compute_s``.
            compute_s: local compute seconds, never the wait for others; NaN if not measured.
            cpu: available CPU (fraction).
            memory: available memory (fraction).
            cap: the most samples that are known to fit this worker's memory.
        """
        self._laps.add(size, compute_s)
        if not self.engine.due(iteration):
            return
        began_s = self._clock()
        size, compute_s = self._laps.take()
        mean, spread = self.forecaster.measured(Measured.single(iteration, size, compute_s, cpu, memory))
        self.exchange.post(
            Report(
                iteration=iteration,
                size=size,
                compute_s=compute_s,
                speed=float(mean[0]),
                spread=float(spread[0]),
                cpu=cpu,
                memory=memory,
                checksum=self.engine.checksum,
                cost_s=self._cost_s,
                cap=cap,
            )
        )
        self._reported = iteration
        self._report_cost_s = self._clock() - began_s

    def boundary(self) -> Decision | None:
        """All workers meet: if a report is on its way, collect all of them and decide; else do nothing.

        Raises:
            RankLostError: a rank did not come within the time limit.
            AllocationMismatchError: the ranks disagree.
        """
        if self._reported is None:
            return None
        began_s = self._clock()
        iteration, self._reported = self._reported, None
        reports = self.exchange.collect()
        self.last_decision = self.engine.handle(Gathered(iteration, reports, self._clock()))
        self._on_decision(self.last_decision)
        cost_s = self._clock() - began_s + self._report_cost_s
        self._cost_s = cost_s if math.isnan(self._cost_s) else 0.7 * self._cost_s + 0.3 * cost_s
        return self.last_decision

    def allocation(self, iteration: int) -> Allocation:
        """The allocation in force in ``iteration``."""
        return self.engine.allocation(iteration)

    def sizes(self, iteration: int) -> IntArray:
        """The sizes in force in ``iteration``, shape ``(W,)``."""
        return self.engine.allocation(iteration).sizes

    def state_dict(self) -> dict[str, Any]:
        """The engine's state, and this worker's predictor's under its rank."""
        return {
            "engine": self.engine.state_dict(),
            "rank": self.rank,
            "predictor": self.forecaster.state_dict(),
        }

    def load_state_dict(self, saved: dict[str, Any], *, iteration: int) -> None:
        """Go on from ``iteration``.

        The saving rank's predictor takes up its exact state; every other rank (one checkpoint is usually
        written, by rank 0) starts from its last reported speed.  With another number of workers the ranks may
        be other machines, so prediction starts anew.
        """
        self.engine.load_state_dict(saved["engine"], iteration=iteration)
        speeds = saved["engine"]["speeds"]
        if len(speeds) != self.problem.workers:
            return
        if saved["rank"] == self.rank:
            self.forecaster.load_state_dict(saved["predictor"])
        elif speeds[self.rank] is not None:
            self.forecaster.seed(np.array([speeds[self.rank]], dtype=np.float64))
