"""Caps in the engine: kept in every iteration once known, the sum kept too, and an error where none is left."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbbsp.core.allocate import DeadBand
from lbbsp.core.memory import PeakState, UpperFit
from lbbsp.core.policy import Problem, Proportional
from lbbsp.core.predict import LastValue
from lbbsp.core.types import Bounds, Reason, Report, Reports
from lbbsp.engine import Engine, Gathered
from lbbsp.errors import InfeasibleBoundsError


def engine_of(workers: int, total: int, *, lag: int = 1, granularity: int = 1, observe_only: bool = False) -> Engine:
    """Without warm-up or dead band: it moves whenever that helps."""
    problem = Problem(total, Bounds.default(workers, total, granularity=granularity))
    policy = Proportional(predictor=LastValue())
    band = DeadBand(min_gain=0.0)
    return Engine(problem, policy, lag=lag, warm_up=0, dead_band=band, observe_only=observe_only)


def reports_of(engine: Engine, k: int, speeds: list[float], caps: list[float]) -> Reports:
    """What workers of these speeds and caps report."""
    x = engine.allocation(k).sizes.tolist()
    return Reports.of(
        Report(k, n, max(n, 1) / v, v, 0.0, math.nan, math.nan, engine.checksum, cap=cap)
        for n, v, cap in zip(x, speeds, caps, strict=True)
    )


@settings(max_examples=60)
@given(
    speeds=st.lists(st.floats(1.0, 100.0), min_size=1, max_size=6),
    granularity=st.sampled_from([1, 4]),
    lag=st.integers(1, 2),
    fixed=st.floats(0, 1e9),
    room=st.floats(1.0, 6.0),
    data=st.data(),
)
def test_learned_caps_are_never_exceeded(
    speeds: list[float], granularity: int, lag: int, fixed: float, room: float, data: st.DataObject
) -> None:
    """Each worker's memory takes the equal split at least; speeds change; no size ever exceeds the memory."""
    workers = len(speeds)
    total = 24 * workers
    engine = engine_of(workers, total, lag=lag, granularity=granularity)
    fit, states = UpperFit(margin=0.0), [PeakState() for _ in speeds]
    per_sample = data.draw(st.lists(st.floats(1e5, 1e7), min_size=workers, max_size=workers))
    limits = [room * (fixed + b * 24) for b in per_sample]
    for k in range(12):
        x = engine.allocation(k).sizes.tolist()
        assert sum(x) == total
        need = [fixed + b * n for b, n in zip(per_sample, x, strict=True)]
        assert all(m <= limit * (1 + 1e-9) for m, limit in zip(need, limits, strict=True)), (k, x)
        states = [
            fit.step(s, size=n, peak_bytes=m, resting_bytes=fixed) for s, n, m in zip(states, x, need, strict=True)
        ]
        caps = [fit.cap(s, limit_bytes=limit) for s, limit in zip(states, limits, strict=True)]
        if data.draw(st.booleans()):
            speeds = [data.draw(st.floats(1.0, 100.0)) for _ in speeds]
        engine.handle(Gathered(k, reports_of(engine, k, speeds, caps), float(k)))


def test_a_cap_holds_back_the_fast_worker_and_lets_go_again() -> None:
    engine = engine_of(2, 40)
    first = engine.handle(Gathered(0, reports_of(engine, 0, [9.0, 1.0], [25.9, math.nan]), 0.0))
    assert first.allocation.sizes.tolist() == [25, 15]
    later = engine.handle(Gathered(1, reports_of(engine, 1, [9.0, 1.0], [math.inf, math.inf]), 1.0))
    assert later.allocation.sizes.tolist() == [36, 4]


@pytest.mark.parametrize("observe_only", [False, True])
def test_sizes_over_a_new_cap_move_at_once(observe_only: bool) -> None:
    """Even where nothing else may move them, and with reports that say nothing of speeds."""
    engine = engine_of(2, 40, observe_only=observe_only)
    decision = engine.handle(Gathered(0, reports_of(engine, 0, [math.nan, 1.0], [12.0, math.inf]), 0.0))
    assert decision.allocation.reason is Reason.CAPPED
    assert decision.allocation.sizes.tolist() == [12, 28]
    assert decision.moved
    assert decision.allocation.detail == "worker 0 has 20 samples, its memory holds 12"


def test_caps_are_rounded_down_to_granules() -> None:
    engine = engine_of(2, 40, granularity=4)
    decision = engine.handle(Gathered(0, reports_of(engine, 0, [9.0, 1.0], [27.0, math.inf]), 0.0))
    assert decision.allocation.sizes.tolist() == [24, 16]


def test_caps_that_leave_no_room_are_an_error_with_the_numbers() -> None:
    engine = engine_of(2, 40)
    with pytest.raises(InfeasibleBoundsError, match=r"40 > 30.*take a global batch of 30 or less"):
        engine.handle(Gathered(0, reports_of(engine, 0, [1.0, 1.0], [10.0, 20.0]), 0.0))


def test_caps_travel_in_reports() -> None:
    rows = np.array([Report(0, 1, 1.0, 1.0, 0.0, 0.0, 0.0, 0, cap=cap).to_row() for cap in (7.0, math.inf)])
    caps = Reports.from_rows(rows).cap
    assert caps is not None
    assert caps.tolist() == [7.0, math.inf]
    assert Reports.from_rows(rows[1:]).cap is None
