"""The engine: a state machine without clock or I/O.  Events in (the time is in the event), decisions out.

It has two halves, as the algorithm has.  A `Forecaster` stands beside each worker (or, vectorised, in a
manager): it takes that worker's measurements and says what the worker should report.  An `Engine` takes the
reports of all workers and decides the next allocation; every rank runs one on identical reports and so holds
the same allocation (I5).

With lag L the reports of iteration k decide the allocation of iteration k + L; the first L iterations run
with the initial one.  Iterations may be left out (those that only accumulate gradients report nothing): the
newest allocation decided for an iteration or before it is the one in force.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lbbsp.core.allocate import DeadBand, apportion, equal_split
from lbbsp.core.cadence import Cadence, Pace
from lbbsp.core.policy import Policy, Problem, Resumable
from lbbsp.core.predict import Observation, Predictor
from lbbsp.core.types import Allocation, Bounds, FloatArray, IntArray, Reason, Reports
from lbbsp.errors import AllocationMismatchError, ConfigurationError, ResumeError

__all__ = ["Decision", "Engine", "Forecaster", "Gathered", "Measured"]

LEAST_PLAUSIBLE_S = 1e-7
MOST_PLAUSIBLE_S = 1e6
"""Compute times outside these bounds (seconds) are absurd: a broken clock, not a slow worker (I6)."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Event for a `Forecaster`: workers ended the local compute of iteration ``iteration``.

    ``size`` (samples), ``compute_s``, ``cpu`` and ``memory`` have shape ``(W,)``; NaN where not measured.
    """

    iteration: int
    size: FloatArray
    compute_s: FloatArray
    cpu: FloatArray
    memory: FloatArray

    @classmethod
    def single(
        cls, iteration: int, size: int, compute_s: float, cpu: float = math.nan, memory: float = math.nan
    ) -> Measured:
        """The measurement of one worker."""
        return cls(iteration, *(np.array([value], dtype=np.float64) for value in (size, compute_s, cpu, memory)))


@dataclass(frozen=True, slots=True)
class Gathered:
    """Event for an `Engine`: the reports of all workers for iteration ``iteration`` are here, at ``at_s``."""

    iteration: int
    reports: Reports
    at_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What the engine decided: the allocation from iteration ``allocation.iteration`` on, and why.

    Args:
        allocation: the sizes, with their reason.
        decided_at: the iteration whose reports led to it.
        at_s: the event's time, seconds.
        moved: whether the sizes differ from those before.
        reports: of ``decided_at``.
        earlier_forecast: the speeds that had been forecast for ``decided_at``, samples/s; None if none had.
        expected_s: expected slowest compute time with these sizes, seconds; NaN if unknown.
        expected_before_s: the same with the sizes before; NaN if unknown.
        proposed: the sizes that the policy would have taken, moved to or not; None if it made no proposal.
        proposed_s: expected slowest compute time with ``proposed``, seconds; NaN if there is none.
        fallbacks: unusable reports so far (I6).
        report_every: iterations from here to the next report.
    """

    allocation: Allocation
    decided_at: int
    at_s: float
    moved: bool
    reports: Reports
    earlier_forecast: FloatArray | None
    expected_s: float
    expected_before_s: float
    proposed: IntArray | None
    proposed_s: float
    fallbacks: int
    report_every: int

    @property
    def forecast(self) -> FloatArray:
        """Forecast speeds, samples/s, shape ``(W,)``."""
        return self.reports.speed

    @property
    def spread(self) -> FloatArray:
        """Standard deviations of the forecasts' errors, samples/s."""
        return self.reports.spread

    @property
    def forecast_error(self) -> FloatArray:
        """``(forecast - measured) / measured`` of the earlier forecast; NaN where either is missing."""
        if self.earlier_forecast is None:
            return np.full(self.reports.workers, np.nan)
        usable = plausible(self.reports.compute_s) & (self.reports.size > 0)
        speed = self.reports.size / np.where(usable, self.reports.compute_s, np.nan)
        return np.asarray((self.earlier_forecast - speed) / speed)


def plausible(compute_s: FloatArray) -> npt.NDArray[np.bool_]:
    """Which compute times can be believed: finite, positive, not absurd."""
    return np.asarray((compute_s >= LEAST_PLAUSIBLE_S) & (compute_s <= MOST_PLAUSIBLE_S))


@dataclass(slots=True)
class Forecaster:
    """A worker's half: from its measurements to the forecast that it reports.

    Args:
        predictor: of the speed.
        workers: how many workers it stands for; 1 beside a training process.
        warm_up: iterations whose times are discarded (allocators, caches and compilers settle).
        lag: L, how many iterations ahead to forecast.
    """

    predictor: Predictor[Any]
    workers: int = 1
    warm_up: int = 1
    lag: int = 1
    _state: Any = field(init=False)
    _seen: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._state = self.predictor.init(self.workers)

    def measured(self, event: Measured) -> tuple[FloatArray, FloatArray]:
        """Take a measurement; return the forecast mean and spread of the speed, samples/s, shape ``(W,)``.

        Times that are NaN, zero, negative or absurd teach the predictor nothing, nor do those of the
        warm-up iterations.
        """
        if self._seen < self.warm_up:
            self._seen += 1
        else:
            usable = plausible(event.compute_s) & (event.size > 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                speed = np.where(usable, event.size / event.compute_s, np.nan)
            self._state = self.predictor.step(self._state, Observation(speed, event.cpu, event.memory))
        forecast = self.predictor.forecast(self._state, steps=self.lag)
        return forecast.mean, forecast.spread

    def seed(self, speed: FloatArray) -> None:
        """Start from known speeds (samples/s; NaN for unknown), as after a resume."""
        self._state = self.predictor.step(self.predictor.init(self.workers), Observation.of_speed(speed))

    def state_dict(self) -> dict[str, list[float]]:
        """The predictor's state as plain numbers."""
        return self.predictor.dump(self._state)

    def load_state_dict(self, saved: dict[str, list[float]]) -> None:
        """Take up a state from `state_dict`."""
        self._state = self.predictor.load(saved)


class Engine:
    """All workers' half: from gathered reports to decisions.

    Args:
        problem: X, W and the bounds.
        policy: proposes sizes.
        lag: L >= 1; reports of iteration k decide iteration k + L.
        warm_up: iterations whose reports decide nothing.
        dead_band: how much a move must gain.
        observe_only: propose and record, but never move.
        cadence: how often workers report; None for every iteration.

    Raises:
        ConfigurationError: ``lag < 1`` or ``warm_up < 0``.
        InfeasibleBoundsError: no allocation of X exists.
    """

    def __init__(
        self,
        problem: Problem,
        policy: Policy[Any],
        *,
        lag: int = 1,
        warm_up: int = 1,
        dead_band: DeadBand | None = None,
        observe_only: bool = False,
        cadence: Cadence | None = None,
    ) -> None:
        if lag < 1:
            raise ConfigurationError(f"lag={lag}: must be 1 or more iterations")
        if warm_up < 0:
            raise ConfigurationError(f"warm_up={warm_up}: must be 0 or more iterations")
        self.problem = replace(problem, dead_band=dead_band or problem.dead_band)
        self.policy, self.lag, self.warm_up = policy, lag, warm_up
        self.observe_only = observe_only
        self.cadence = cadence or Cadence(longest=1)
        self.fallbacks = 0
        self._uncapped = self.problem
        self._caps: FloatArray | None = None
        self._policy_state = policy.init(self.problem)
        start = equal_split(problem.global_batch_size, problem.bounds)
        self._begin(Allocation(0, start, Reason.INITIAL, "the equal split within the bounds"))

    def _begin(self, allocation: Allocation) -> None:
        self._decided = deque([allocation], maxlen=self.lag + 1)
        self._last_handled = allocation.iteration - 1
        self._pace = Pace()
        self._warm_up_left = self.warm_up
        self._forecasts: deque[tuple[int, FloatArray]] = deque(maxlen=self.lag + 1)

    @property
    def newest(self) -> Allocation:
        """The allocation decided last."""
        return self._decided[-1]

    def allocation(self, iteration: int) -> Allocation:
        """The allocation in force in ``iteration``, as far as has been decided by now.

        Raises:
            KeyError: the iteration is long past.
        """
        for allocation in reversed(self._decided):
            if allocation.iteration <= iteration:
                return allocation
        raise KeyError(iteration)

    @property
    def checksum(self) -> int:
        """Checksum of the newest allocation; goes into reports."""
        return self.newest.checksum

    def due(self, iteration: int) -> bool:
        """Whether workers report in ``iteration``."""
        return iteration - self._last_handled >= self._pace.every

    def handle(self, event: Gathered) -> Decision:
        """Take the reports of an iteration and decide iteration ``event.iteration + lag``.

        Raises:
            AllocationMismatchError: the workers' last allocations differ (I5).
            InfeasibleBoundsError: the caps that workers report no longer admit X; on all of them alike.
            ConfigurationError: the reports are not those of the iteration that is due, or not W of them.
        """
        k, reports = event.iteration, event.reports
        if k <= self._last_handled:
            raise ConfigurationError(f"reports of iteration {k} are not due: {self._last_handled} is done")
        if reports.workers != self.problem.workers:
            raise ConfigurationError(f"{reports.workers} reports for {self.problem.workers} workers")
        self._check_agreement(k, reports)
        self._keep_caps(reports.cap)
        while self._forecasts and self._forecasts[0][0] < k:
            self._forecasts.popleft()
        earlier = self._forecasts[0][1] if self._forecasts and self._forecasts[0][0] == k else None
        allocation, expected, before, proposal = self._decide(k, reports)
        self._last_handled = k
        self._pace = self._next_pace(allocation.reason, reports)
        self._decided.append(allocation)
        self._forecasts.append((allocation.iteration, reports.speed))
        return Decision(
            allocation=allocation,
            decided_at=k,
            at_s=event.at_s,
            moved=allocation.reason in (Reason.MOVED, Reason.CAPPED),
            reports=reports,
            earlier_forecast=earlier,
            expected_s=expected,
            expected_before_s=before,
            proposed=proposal[0] if proposal else None,
            proposed_s=proposal[1] if proposal else math.nan,
            fallbacks=self.fallbacks,
            report_every=self._pace.every,
        )

    def _next_pace(self, reason: Reason, reports: Reports) -> Pace:
        if self.cadence.longest == 1:
            return self._pace
        settled = reason in (Reason.UNCHANGED, Reason.WITHIN_DEAD_BAND, Reason.OBSERVING)
        slowest_s, dearest_s = np.maximum.reduce(reports.compute_s), np.maximum.reduce(reports.cost_s)
        return self.cadence.next(self._pace, settled=settled, cost_s=float(dearest_s), step_s=float(slowest_s))

    def _check_agreement(self, k: int, reports: Reports) -> None:
        expected = self.checksum
        if np.count_nonzero((reports.checksum == expected) & (reports.iteration == k)) == reports.workers:
            return
        raise AllocationMismatchError(
            f"iteration {k}: the workers disagree on where they are or on the last allocation; "
            f"iterations {reports.iteration.tolist()}, checksums {reports.checksum.tolist()}, here {expected}. "
            "Every rank must run the same lbbsp with the same settings."
        )

    def _keep_caps(self, caps: FloatArray | None) -> None:
        """Lower the upper bounds to the caps that the workers report, and raise them again with these.

        A cap below a worker's lower bound asks for what cannot be done: the lower bound stands.
        """
        if caps is self._caps or (caps is not None and self._caps is not None and np.array_equal(caps, self._caps)):
            return
        bounds = self._uncapped.bounds
        hi = bounds.hi
        if caps is not None:
            least = np.minimum(np.maximum(bounds.lo, bounds.granularity), hi)
            lower = caps < hi  # False for NaN
            hi = np.where(lower, np.maximum(np.where(lower, caps, 0.0).astype(np.int64), least), hi)
        self.problem = replace(self._uncapped, bounds=Bounds(bounds.lo, hi, bounds.granularity))
        self._caps = caps

    def _decide(self, k: int, reports: Reports) -> tuple[Allocation, float, float, tuple[IntArray, float] | None]:
        current, target, unknown = self.newest.sizes, k + self.lag, math.nan

        def stay(reason: Reason, detail: str) -> Allocation:
            return Allocation(target, current, reason, detail)

        if self._caps is not None and not self.problem.bounds.admit(current, self.problem.global_batch_size):
            fitting = apportion(np.maximum(current, 1e-9), self.problem.global_batch_size, self.problem.bounds)
            over = np.flatnonzero(current > self.problem.bounds.hi)
            worker = int(over[0]) if over.size else 0
            why = f"worker {worker} has {current[worker]} samples, its memory holds {self.problem.bounds.hi[worker]}"
            return Allocation(target, fitting, Reason.CAPPED, why), unknown, unknown, None
        if self._warm_up_left > 0:
            self._warm_up_left -= 1
            why = f"iteration {k} is one of the first {self.warm_up}, whose times are discarded"
            return stay(Reason.WARM_UP, why), unknown, unknown, None
        if not reports.usable(LEAST_PLAUSIBLE_S, MOST_PLAUSIBLE_S):
            good = plausible(reports.compute_s) & (reports.speed > 0) & (reports.speed < np.inf)
            bad = np.flatnonzero(~good)
            self.fallbacks += int(bad.size)
            worker = int(bad[0])
            why = (
                f"worker {worker} reported {reports.compute_s[worker]} s and a speed of {reports.speed[worker]}"
                f" samples/s ({bad.size} unusable of {good.size}); the last good allocation is kept"
            )
            return stay(Reason.FALLBACK, why), unknown, unknown, None
        proposal, self._policy_state = self.policy.propose(self.problem, self._policy_state, reports, current)
        if proposal is None:
            return (
                stay(Reason.UNCHANGED, f"policy {self.policy.name} proposes nothing"),
                unknown,
                unknown,
                None,
            )
        after, before, sizes = proposal.expected_s, proposal.expected_before_s, proposal.sizes
        if sizes is current:
            return stay(Reason.UNCHANGED, proposal.detail), before, before, (sizes, after)
        if not self.problem.bounds.admit(sizes, self.problem.global_batch_size):
            raise ConfigurationError(
                f"policy {self.policy.name} proposed {np.asarray(sizes).tolist()}, which breaks the sum "
                f"{self.problem.global_batch_size} or the bounds"
            )
        if np.count_nonzero(sizes != current) == 0:
            return stay(Reason.UNCHANGED, "the sizes in force are the best"), before, before, (sizes, after)
        if self.observe_only:
            return stay(Reason.OBSERVING, proposal.detail), before, before, (sizes, after)
        if not (proposal.weighed or self.problem.dead_band.worth(before, after)):
            why = f"{before:.4g} s would become {after:.4g} s: less than a move must gain"
            return stay(Reason.WITHIN_DEAD_BAND, why), before, before, (sizes, after)
        return Allocation(target, sizes, Reason.MOVED, proposal.detail), after, before, (sizes, after)

    def state_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint: the newest sizes, the last speeds of all, what the policy has learned."""
        speeds = self._forecasts[-1][1] if self._forecasts else np.full(self.problem.workers, np.nan)
        return {
            "global_batch_size": self.problem.global_batch_size,
            "sizes": self.newest.sizes.tolist(),
            "speeds": [None if math.isnan(v) else v for v in speeds.tolist()],
            "fallbacks": self.fallbacks,
            "policy": {"repr": repr(self.policy), "state": self._dumped()},
        }

    def _dumped(self) -> dict[str, Any] | None:
        return self.policy.dump(self._policy_state) if isinstance(self.policy, Resumable) else None

    def load_state_dict(self, saved: dict[str, Any], *, iteration: int) -> None:
        """Go on from ``iteration`` with the saved sizes, if they fit W and the bounds; else from equal ones.

        The policy takes up its saved state if it is the same policy with the same settings and its sizes fit;
        otherwise it starts anew.

        Raises:
            ResumeError: the checkpoint's global batch is another.
        """
        if saved["global_batch_size"] != self.problem.global_batch_size:
            raise ResumeError(
                f"the checkpoint has global_batch_size={saved['global_batch_size']}, this run "
                f"{self.problem.global_batch_size}; the learning rate and the order belong to the former"
            )
        fits = self.problem.bounds.admit(saved["sizes"], self.problem.global_batch_size)
        if fits:
            sizes, why = np.array(saved["sizes"]), "the checkpoint's sizes"
        else:
            sizes = equal_split(self.problem.global_batch_size, self.problem.bounds)
            why = f"the equal split: the checkpoint's {len(saved['sizes'])} sizes do not fit this run"
        self.fallbacks = int(saved["fallbacks"])
        self._begin(Allocation(iteration, sizes, Reason.RESUMED, why))
        self._policy_state = self.policy.init(self.problem)
        learned = saved.get("policy", {})  # checkpoints of lbbsp 0.1 have none
        same = fits and learned.get("state") is not None and learned["repr"] == repr(self.policy)
        if same and isinstance(self.policy, Resumable):
            self._policy_state = self.policy.load(learned["state"])
