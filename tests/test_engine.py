"""The engine as a state machine: I1, I5, I6 and I7 under any events, and its behaviour in a closed loop."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lbbsp.core.allocate import DeadBand, equal_split
from lbbsp.core.policy import LeaderStraggler, Problem, Proportional
from lbbsp.core.predict import AdaptiveEma, LastValue
from lbbsp.core.types import Bounds, Reason, Report, Reports
from lbbsp.engine import Decision, Engine, Forecaster, Gathered, Measured
from lbbsp.errors import AllocationMismatchError, ConfigurationError, ResumeError

NONSENSE = [math.nan, 0.0, -1.0, math.inf, -math.inf, 1e300, 1e-300]


class Ranks:
    """W ranks, each with an engine and a forecaster of its own, fed as over an exchange."""

    def __init__(self, workers: int, total: int, *, lag: int = 1, warm_up: int = 1, **options: Any) -> None:
        self.problem = Problem(total, Bounds.default(workers, total))
        self.policy = Proportional(predictor=options.pop("predictor", AdaptiveEma()))
        self.engines = [Engine(self.problem, self.policy, lag=lag, warm_up=warm_up, **options) for _ in range(workers)]
        self.forecasters = [Forecaster(self.policy.predictor, warm_up=warm_up, lag=lag) for _ in range(workers)]

    def reports(self, k: int, times_s: list[float]) -> Reports:
        """What the ranks report of iteration k."""
        rows = []
        for rank, (engine, forecaster) in enumerate(zip(self.engines, self.forecasters, strict=True)):
            size = int(engine.allocation(k).sizes[rank])
            mean, spread = forecaster.measured(Measured.single(k, size, times_s[rank]))
            rows.append(
                Report(k, size, times_s[rank], float(mean[0]), float(spread[0]), math.nan, math.nan, engine.checksum)
            )
        return Reports.of(rows)

    def iterate(self, k: int, times_s: list[float]) -> Decision:
        """One iteration on all ranks; they must decide alike."""
        reports = self.reports(k, times_s)
        decisions = [engine.handle(Gathered(k, reports, float(k))) for engine in self.engines]
        first = decisions[0]
        for other in decisions[1:]:
            assert other.allocation.sizes.tolist() == first.allocation.sizes.tolist()
            assert other.allocation.checksum == first.allocation.checksum
            assert other.allocation.detail == first.allocation.detail
        return first


class EngineMachine(RuleBasedStateMachine):
    """Any sequence of good and bad measurements, with gaps and resumes."""

    @initialize(
        workers=st.integers(1, 6),
        extra=st.integers(0, 60),
        lag=st.integers(1, 2),
        warm_up=st.integers(0, 2),
        observe=st.booleans(),
        band=st.sampled_from([0.0, 0.02, 0.3]),
    )
    def begin(self, workers: int, extra: int, lag: int, warm_up: int, observe: bool, band: float) -> None:
        self.options = {"lag": lag, "warm_up": warm_up, "observe_only": observe, "dead_band": DeadBand(min_gain=band)}
        self.workers, self.total = workers, workers + extra
        self.ranks = Ranks(workers, self.total, **self.options)  # type: ignore[arg-type]
        self.k, self.bad, self.reports_seen = 0, 0, 0
        self.last = self.ranks.engines[0].newest

    @rule(data=st.data(), gap=st.sampled_from([0, 0, 0, 1, 3]))
    def good(self, data: st.DataObject, gap: int) -> None:
        self.k += gap
        times = data.draw(st.lists(st.floats(1e-3, 1e3), min_size=self.workers, max_size=self.workers))
        self.take(self.ranks.iterate(self.k, times))

    @rule(data=st.data(), bad=st.sampled_from(NONSENSE))
    def some_bad(self, data: st.DataObject, bad: float) -> None:
        times = data.draw(st.lists(st.floats(1e-3, 1e3), min_size=self.workers, max_size=self.workers))
        victims = data.draw(st.sets(st.integers(0, self.workers - 1), min_size=1))
        for victim in victims:
            times[victim] = bad
        counted = self.reports_seen >= self.ranks.engines[0].warm_up
        decision = self.ranks.iterate(self.k, times)
        if counted:  # I6: the last good allocation, and counted
            self.bad += len(victims)
            assert decision.allocation.reason is Reason.FALLBACK
            assert decision.allocation.sizes.tolist() == self.last.sizes.tolist()
        self.take(decision)

    def take(self, decision: Decision) -> None:
        self.reports_seen += 1
        allocation = decision.allocation
        assert allocation.iteration == self.k + self.ranks.engines[0].lag
        assert allocation.reason
        assert allocation.detail
        moved = allocation.sizes.tolist() != self.last.sizes.tolist()
        assert decision.moved == moved
        if moved:  # I7
            band = self.ranks.engines[0].problem.dead_band
            assert band.worth(decision.expected_before_s, decision.expected_s)
            assert not self.options["observe_only"]
        if self.reports_seen <= self.ranks.engines[0].warm_up:
            assert allocation.reason is Reason.WARM_UP
        self.last = allocation
        self.k += 1

    @rule()
    def a_corrupted_rank_is_noticed(self) -> None:
        reports = self.ranks.reports(self.k, [0.1] * self.workers)
        wrong = reports.checksum.copy()
        wrong[-1] ^= 1
        broken = Reports(**{**{f: getattr(reports, f) for f in reports.__slots__}, "checksum": wrong})
        for engine in self.ranks.engines:
            with pytest.raises(AllocationMismatchError):
                engine.handle(Gathered(self.k, broken, 0.0))

    @rule(workers=st.integers(1, 6))
    def resume(self, workers: int) -> None:
        state = json.loads(json.dumps(self.ranks.engines[0].state_dict(), allow_nan=False))
        if workers > self.total:
            return
        self.ranks = Ranks(workers, self.total, **self.options)  # type: ignore[arg-type]
        for engine in self.ranks.engines:
            engine.load_state_dict(state, iteration=self.k)
        newest = self.ranks.engines[0].newest
        if workers == self.workers:
            assert newest.sizes.tolist() == self.last.sizes.tolist()
        self.workers, self.last, self.reports_seen = workers, newest, 0

    @precondition(lambda self: hasattr(self, "ranks"))
    @invariant()
    def sums_and_counts_hold(self) -> None:
        for engine in self.ranks.engines:
            for k in range(self.k, self.k + engine.lag):
                assert self.ranks.problem.bounds.admit(engine.allocation(k).sizes, self.total)
            assert engine.fallbacks == self.bad


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=60, stateful_step_count=20)


def loop(speeds: np.ndarray, iterations: int, *, noise: float = 0.0, lag: int = 1, **options: Any) -> list[Decision]:
    """A closed loop: times follow from the sizes and the (changing) speeds; returns the decisions."""
    workers = speeds.shape[-1]
    ranks = Ranks(workers, 64 * workers, lag=lag, **options)
    rng = np.random.default_rng(0)
    decisions = []
    for k in range(iterations):
        v = (speeds if speeds.ndim == 1 else speeds[k]) * np.exp(noise * rng.standard_normal(workers))
        decisions.append(ranks.iterate(k, (ranks.engines[0].allocation(k).sizes / v).tolist()))
    return decisions


@pytest.mark.parametrize("lag", [1, 2])
def test_steady_inequality_is_balanced_within_five_iterations(lag: int) -> None:
    speeds = np.array([0.8, 0.5, 0.3, 0.2]) * 100
    decisions = loop(speeds, 30, lag=lag)
    best_s = 256 / speeds.sum()
    for decision in decisions[4 - lag :]:
        assert (decision.allocation.sizes / speeds).max() <= 1.03 * best_s
    assert sum(d.moved for d in decisions) <= 2


def test_equal_workers_never_move() -> None:
    assert not any(d.moved for d in loop(np.full(5, 33.0), 40))


def test_noise_alone_moves_little() -> None:
    """3% noise on equal workers: after a while no more than a sample or three."""
    sizes = np.array([d.allocation.sizes for d in loop(np.full(4, 100.0), 300, noise=0.03)])[100:]
    assert np.abs(sizes - 64).max() <= 3


@pytest.mark.parametrize("lag", [1, 2])
def test_a_jump_is_followed(lag: int) -> None:
    speeds = np.full((60, 4), 100.0)
    speeds[30:, 2] = 25.0
    decisions = loop(speeds, 60, noise=0.02, lag=lag)
    optimum = 256 * 25 / 325
    assert abs(decisions[33].allocation.sizes[2] - optimum) <= 4


def test_lag_is_kept() -> None:
    """The allocation of k + L rests on the reports up to k, so a change in the reports of k shows there first."""
    for lag in (1, 2):
        one, other = (Ranks(2, 40, lag=lag, warm_up=0, predictor=LastValue()) for _ in range(2))
        for k in range(6):
            one.iterate(k, [1.0, 1.0])
            other.iterate(k, [1.0, 4.0 if k == 5 else 1.0])
        for k in range(6, 6 + lag - 1):
            assert one.engines[0].allocation(k).sizes.tolist() == other.engines[0].allocation(k).sizes.tolist()
        assert other.engines[0].allocation(5 + lag).sizes[1] < 20


def test_forecast_errors_are_of_the_forecast_for_that_iteration() -> None:
    decisions = loop(np.array([[100.0, 50.0]] * 3 + [[50.0, 50.0]]), 4, predictor=LastValue(), warm_up=0)
    assert np.isnan(decisions[0].forecast_error).all()
    assert decisions[2].forecast_error.tolist() == pytest.approx([0.0, 0.0])
    assert decisions[3].forecast_error.tolist() == pytest.approx([1.0, 0.0])


def test_replaying_events_gives_the_same_decisions() -> None:
    first, second = (loop(np.array([3.0, 5.0, 2.0]), 25, noise=0.1) for _ in range(2))
    assert [d.allocation.detail for d in first] == [d.allocation.detail for d in second]


@pytest.mark.parametrize("options", [{"lag": 0}, {"warm_up": -1}])
def test_bad_options(options: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Engine(Problem(8, Bounds.default(2, 8)), Proportional(), **options)  # type: ignore[arg-type]


def test_wrong_reports_are_refused() -> None:
    ranks = Ranks(2, 8)
    reports = ranks.reports(0, [1.0, 1.0])
    engine = ranks.engines[0]
    engine.handle(Gathered(0, reports, 0.0))
    with pytest.raises(ConfigurationError, match="0 is done"):
        engine.handle(Gathered(0, reports, 0.0))
    with pytest.raises(ConfigurationError, match="3 reports for 2 workers"):
        engine.handle(Gathered(1, Ranks(3, 8).reports(0, [1.0] * 3), 0.0))
    with pytest.raises(ResumeError, match="global_batch_size=8, this run 9"):
        Engine(Problem(9, Bounds.default(2, 9)), Proportional()).load_state_dict(engine.state_dict(), iteration=1)


def test_a_policy_that_breaks_the_sum_is_an_error() -> None:
    from tests.support.policies import FixedSizes

    engine = Engine(Problem(8, Bounds.default(2, 8)), FixedSizes((5, 4)), warm_up=0)
    ranks = Ranks(2, 8, warm_up=0)
    assert engine.newest.sizes.tolist() == equal_split(8, engine.problem.bounds).tolist()
    with pytest.raises(ConfigurationError, match=r"proposed \[5, 4\]"):
        engine.handle(Gathered(0, ranks.reports(0, [1.0, 1.0]), 0.0))


def stepping(policy: LeaderStraggler, times_s: list[float], iterations: int, engine: Engine | None = None) -> Engine:
    """An engine after some iterations with fixed times."""
    engine = engine or Engine(Problem(128, Bounds.default(2, 128)), policy, warm_up=0)
    first = engine.newest.iteration
    for k in range(first, first + iterations):
        x = engine.allocation(k).sizes
        rows = [
            Report(k, int(x[i]), times_s[i], x[i] / times_s[i], 0.0, math.nan, math.nan, engine.checksum)
            for i in range(2)
        ]
        engine.handle(Gathered(k, Reports.of(rows), 0.0))
    return engine


def test_what_the_policy_has_learned_is_in_the_checkpoint() -> None:
    policy = LeaderStraggler(window=3)
    whole, first = stepping(policy, [0.1, 0.3], 3), stepping(policy, [0.1, 0.3], 2)
    saved = json.loads(json.dumps(first.state_dict(), allow_nan=False))
    resumed = Engine(first.problem, policy, warm_up=0)
    resumed.load_state_dict(saved, iteration=2)
    stepping(policy, [0.1, 0.3], 1, resumed)  # the third iteration of the window that was open
    assert resumed.newest.sizes.tolist() == whole.newest.sizes.tolist() != [64, 64]
    for other in (LeaderStraggler(window=4), Proportional()):
        anew: Engine = Engine(first.problem, other, warm_up=0)
        anew.load_state_dict(saved, iteration=2)  # another policy starts with what it has itself
        assert anew.newest.sizes.tolist() == [64, 64]
    del saved["policy"]
    resumed.load_state_dict(saved, iteration=2)
    assert stepping(policy, [0.1, 0.3], 1, resumed).newest.sizes.tolist() == [64, 64]


def test_a_move_that_the_policy_has_weighed_passes_the_dead_band() -> None:
    """Of two equal stragglers one is relieved first: that gains nothing yet."""
    engine = Engine(Problem(96, Bounds.default(3, 96)), LeaderStraggler(), warm_up=0, dead_band=DeadBand(min_gain=0.5))
    rows = [Report(0, 32, t, 32 / t, 0.0, math.nan, math.nan, engine.checksum) for t in (0.3, 0.3, 0.1)]
    decision = engine.handle(Gathered(0, Reports.of(rows), 0.0))
    assert decision.moved
    assert decision.allocation.sizes.tolist() == [21, 32, 43]
