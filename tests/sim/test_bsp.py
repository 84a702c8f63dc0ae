"""The synchronous simulator: sums, the oracle, determinism, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbbsp.core.allocate import DeadBand
from lbbsp.core.policy import Equal, Proportional
from lbbsp.core.predict import AdaptiveEma, LastValue
from lbbsp.core.types import Bounds
from lbbsp.engine import Decision
from lbbsp.errors import ConfigurationError, InfeasibleBoundsError
from lbbsp.sim.bsp import SpeedTruth, simulate_bsp

LAST = Proportional(predictor=LastValue())
EVERY = DeadBand(min_gain=0.0)


def walk(iterations: int, workers: int, seed: int = 0) -> np.ndarray:
    """Speeds that wander."""
    rng = np.random.default_rng(seed)
    return np.asarray(100 * np.exp(0.1 * rng.standard_normal((iterations, workers)).cumsum(axis=0)))


@given(
    speeds=st.integers(1, 6).flatmap(
        lambda w: st.lists(st.lists(st.floats(0.1, 1e4), min_size=w, max_size=w), min_size=1, max_size=12)
    ),
    extra=st.integers(0, 300),
    lag=st.integers(1, 3),
    policy=st.sampled_from([Equal(), LAST, Proportional(predictor=AdaptiveEma())]),
)
@settings(max_examples=60)
def test_sums_hold_and_the_oracle_is_never_beaten(
    speeds: list[list[float]], extra: int, lag: int, policy: Proportional
) -> None:
    total = len(speeds[0]) + extra
    outcome = simulate_bsp(SpeedTruth(speeds), policy, global_batch_size=total, iterations=len(speeds), lag=lag)
    assert (outcome.sizes.sum(axis=1) == total).all()
    assert (outcome.oracle_s <= outcome.iteration_s).all()
    assert (outcome.iteration_s == outcome.compute_s.max(axis=1)).all()
    assert 0 < outcome.efficiency <= 1
    assert (outcome.idle_share >= 0).all()


def test_constant_speeds_become_perfect() -> None:
    truth = SpeedTruth(np.tile([80.0, 50.0, 30.0, 20.0], (2000, 1)))
    outcome = simulate_bsp(truth, LAST, global_batch_size=256, iterations=2000, dead_band=EVERY)
    assert (outcome.iteration_s[1:] == outcome.oracle_s[1:]).all()
    assert outcome.efficiency == pytest.approx(1.0, abs=1e-3)
    assert outcome.moves == 1


def test_equal_split_is_slowed_to_the_slowest() -> None:
    outcome = simulate_bsp(SpeedTruth([[4.0, 1.0]] * 3), Equal(), global_batch_size=10, iterations=3)
    assert outcome.iteration_s.tolist() == [5.0] * 3
    assert outcome.oracle_s.tolist() == [2.0] * 3
    assert outcome.efficiency == pytest.approx(0.4)
    assert outcome.idle_share.tolist() == [0.75, 0.0]


def test_runs_repeat_bit_for_bit() -> None:
    first, second = (
        simulate_bsp(SpeedTruth(walk(60, 5)), Proportional(), global_batch_size=320, iterations=60) for _ in range(2)
    )
    assert first.sizes.tobytes() == second.sizes.tobytes()
    assert first.forecasts.tobytes() == second.forecasts.tobytes()


@pytest.mark.parametrize("lag", [1, 2])
def test_forecasts_stand_at_the_iteration_they_are_for(lag: int) -> None:
    v = walk(20, 3)
    outcome = simulate_bsp(SpeedTruth(v), LAST, global_batch_size=300, iterations=20, lag=lag, dead_band=EVERY)
    assert np.isnan(outcome.forecasts[:lag]).all()
    assert outcome.forecasts[lag:] == pytest.approx(v[:-lag], rel=1e-12)
    assert (outcome.sizes[:lag] == outcome.sizes[0]).all()


def test_communication_is_common_to_both_sides() -> None:
    outcome = simulate_bsp(
        SpeedTruth([[4.0, 1.0]] * 2), Equal(), global_batch_size=10, iterations=2, communication_s=3.0
    )
    assert outcome.efficiency == pytest.approx(5 / 8)


def test_observing_never_moves_but_decides() -> None:
    seen: list[Decision] = []
    outcome = simulate_bsp(
        SpeedTruth(walk(10, 3)),
        LAST,
        global_batch_size=99,
        iterations=10,
        observe_only=True,
        on_decision=seen.append,
    )
    assert outcome.moves == 0
    assert (outcome.sizes == 33).all()
    assert len(seen) == 10
    assert seen[-1].at_s == pytest.approx(outcome.total_s)


def test_cpu_and_memory_reach_the_predictor() -> None:
    truth = SpeedTruth([[2.0, 1.0]], cpu=[[0.5, 0.25]])
    cpu, memory = truth.sensed(0)
    assert cpu.tolist() == [0.5, 0.25]
    assert np.isnan(memory).all()


@pytest.mark.parametrize(
    ("speeds", "options", "says"),
    [
        ([[1.0, math.nan]], {}, "worker 1 in iteration 0 is nan"),
        ([[1.0, -2.0]], {}, "is -2.0 samples/s: must be positive"),
        ([], {}, "shape"),
        ([[1.0, 1.0]], {"iterations": 2}, "end after 1 iterations"),
        ([[1.0, 1.0]], {"iterations": 0}, "iterations=0"),
        ([[1.0, 1.0]], {"communication_s": math.nan}, "communication_s=nan"),
        ([[1.0, 1.0]], {"bounds": Bounds.default(3, 8)}, "bounds of 3 workers for a cluster of 2"),
    ],
)
def test_bad_input_is_refused(speeds: list[list[float]], options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        simulate_bsp(SpeedTruth(speeds), LAST, **{"global_batch_size": 8, "iterations": 1, **options})  # type: ignore[arg-type]


def test_other_shapes_of_cpu_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"cpu has shape \(1,\)"):
        SpeedTruth([[1.0, 1.0]], cpu=[0.5])


def test_caps_below_the_batch_are_refused() -> None:
    with pytest.raises(InfeasibleBoundsError, match="8 > 6"):
        simulate_bsp(
            SpeedTruth([[1.0, 1.0]]),
            LAST,
            global_batch_size=8,
            iterations=1,
            bounds=Bounds(np.array([1, 1]), np.array([3, 3])),
        )
