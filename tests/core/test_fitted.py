"""Fitted time models and the policy on them: what is learned, what is risked, and when there is rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbbsp.core.fitted_times import FittedTimes, fit
from lbbsp.core.policy import Fitted, Problem
from lbbsp.core.seen import KEPT, Seen
from lbbsp.core.time_models import AffineTimes, largest_by_bisection
from lbbsp.core.types import Bounds
from lbbsp.engine import Decision
from lbbsp.errors import ConfigurationError
from lbbsp.sim.bsp import Outcome, simulate_bsp
from lbbsp.sim.profiles import ProfileTruth, read_pollux
from lbbsp.sim.profiles.scenarios import mixed_clusters
from lbbsp.sim.truth import ModelTruth
from lbbsp.testing import PolicyContract

PROFILES = Path(__file__).resolve().parents[1] / "fixtures" / "profiles"


class TestFitted(PolicyContract):
    policy = Fitted()


def run(models: AffineTimes, *, noise: float = 0.0, iterations: int = 100, seed: int = 0, **more: Any) -> Outcome:
    workers = models.flat_s.size
    truth = ModelTruth(base=models, noise=np.full(workers, noise), seed=seed, availability=more.pop("slow", None))
    return simulate_bsp(truth, Fitted(), global_batch_size=64 * workers, iterations=iterations, **more)


def moves(outcome: Outcome) -> Any:
    return (np.diff(outcome.sizes, axis=0) != 0).any(axis=1)


positive = st.floats(1e-4, 10)


@given(st.data(), st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_the_closed_form_is_the_largest_size_within_a_limit(data: st.DataObject, w: int) -> None:
    def column(values: Any) -> Any:
        return np.array(data.draw(st.lists(values, min_size=w, max_size=w)))

    models = FittedTimes(column(st.floats(0, 1)), column(st.floats(-1, 1)), column(st.floats(0, 0.1)), column(positive))
    lo = column(st.integers(0, 50))
    hi = lo + column(st.integers(0, 500))
    limit = data.draw(st.floats(0, 20))
    assert models.largest_within(limit, lo, hi).tolist() == largest_by_bisection(models, limit, lo, hi).tolist()
    np.testing.assert_array_equal(models.time_of(np.arange(w), hi), models.time_s(hi))


def test_a_fit_finds_flat_part_kink_and_slope() -> None:
    truth = AffineTimes(np.array([0.2, 0.0]), np.array([0.05, 0.1]), np.array([0.002, 0.003]))
    seen, rng = Seen.nothing(2), np.random.default_rng(1)
    for size in (20, 40, 100, 160, 240):
        for _ in range(30):
            x = np.array([size, size])
            seen, _ = seen.observe(x.astype(float), truth.time_s(x) * np.exp(0.02 * rng.standard_normal(2)))
    models = fit(seen, elasticity_spread=0.5)
    for size in (30, 60, 120, 200, 240):
        x = np.array([size, size])
        np.testing.assert_allclose(models.time_s(x), truth.time_s(x), rtol=0.06)
    np.testing.assert_allclose(seen.noise, 0.02, rtol=0.4)


def test_beyond_what_was_seen_time_is_not_thought_less_than_a_device_can_take() -> None:
    """Whatever the flat part and the fixed cost: the model is no less than the truth above the sizes seen."""
    rng = np.random.default_rng(2)
    w = 40
    truth = AffineTimes(rng.uniform(0, 0.5, w), rng.uniform(0, 0.3, w), rng.uniform(1e-4, 5e-3, w))
    seen = Seen.nothing(w)
    for size in (30.0, 50.0):
        for _ in range(5):
            seen, _ = seen.observe(np.full(w, size), truth.time_s(np.full(w, int(size))))
        models = fit(seen, elasticity_spread=0.5)
        for factor in (1, 2, 5):
            x = np.full(w, int(size) * factor)
            assert (models.time_s(x) >= 0.98 * truth.time_s(x)).all()


def test_means_forget_clip_single_stalls_and_start_anew_after_lasting_changes() -> None:
    seen, x = Seen.nothing(1), np.array([10.0])
    for _ in range(50):
        seen, changed = seen.observe(x, np.array([1.0]))
        assert not changed
    stalled, changed = seen.observe(x, np.array([9.0]))
    assert not changed
    np.testing.assert_allclose(stalled.y, 1.0, rtol=0.01)
    slow, after = seen, 0
    while not changed:
        slow, changed = slow.observe(x, np.array([1.3]))
        after += 1
    assert after <= 3
    slow, _ = slow.observe(x, np.array([1.3]))
    np.testing.assert_allclose(slow.y, 1.3, rtol=0.01)


def test_other_sizes_slow_along_and_known_ones_are_recalled() -> None:
    seen = Seen.nothing(1)
    for size, time in ((10.0, 1.0), (20.0, 1.8)):
        for _ in range(20):
            seen, _ = seen.observe(np.array([size]), np.array([time]))
    for _ in range(6):  # twice as slow from now on
        seen, _ = seen.observe(np.array([20.0]), np.array([3.6]))
    back, _ = seen.observe(np.array([10.0]), np.array([2.0]))
    np.testing.assert_allclose(back.y, 2.0, rtol=0.02)
    assert back.n[0] > 1  # recalled, not begun anew
    for size in range(30, 130, 10):
        back, _ = back.observe(np.array([float(size)]), np.array([size / 5.0]))
    assert np.count_nonzero(back.ns) == KEPT
    idle, _ = back.observe(np.array([0.0]), np.array([0.01]))
    assert idle.x == back.x
    np.testing.assert_allclose(idle.y, back.y)


def test_it_settles_within_a_few_iterations_and_stays() -> None:
    models = AffineTimes(np.array([0, 0.05, 0, 0.1]), np.array([0.02, 0, 0.05, 0]), np.array([4, 1, 2, 1]) * 1e-3)
    for seed in range(5):
        outcome = run(models, noise=0.03, seed=seed, iterations=300)
        slowest = np.array([models.time_s(x).max() for x in outcome.sizes])
        within = slowest / outcome.oracle_s <= 1.05
        assert within[8:].mean() > 0.9
        assert moves(outcome)[8:].mean() < 0.02


@given(st.integers(0, 10_000), st.floats(0.0, 0.1), st.booleans())
@settings(max_examples=6, deadline=None)
def test_flat_devices_do_not_oscillate(seed: int, noise: float, unequal: bool) -> None:
    flat = np.array([0.1, 0.1, 0.1, 0.1]) * (np.array([1, 2, 1, 3]) if unequal else 1)
    outcome = run(AffineTimes(flat, np.zeros(4), np.full(4, 1e-5)), noise=noise, iterations=120, seed=seed)
    assert (outcome.sizes.sum(axis=1) == 256).all()
    assert moves(outcome)[40:].sum() <= 2


def test_trying_a_size_costs_no_more_than_staying() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        w = 4
        models = AffineTimes(rng.uniform(0, 0.3, w), rng.uniform(0, 0.2, w), rng.uniform(5e-4, 5e-3, w))
        outcome = run(models, iterations=30)
        assert (outcome.iteration_s[1:] <= 1.03 * outcome.iteration_s[:-1]).all()
        assert outcome.iteration_s[-1] <= 1.06 * outcome.oracle_s[-1]


def test_a_device_that_slows_is_met_within_a_few_iterations() -> None:
    models = AffineTimes(np.zeros(4), np.full(4, 0.02), np.array([1, 1, 2, 2]) * 1e-3)
    slow = np.ones((100, 4))
    slow[50:, 0] = 0.5
    for seed in range(4):
        outcome = run(models, noise=0.03, slow=slow, seed=seed)
        factor = 1 / slow
        quiet = np.array([(f * models.time_s(x)).max() for f, x in zip(factor, outcome.sizes, strict=True)])
        ratio = quiet / outcome.oracle_s
        assert ratio[50] > 1.4
        assert ratio[56:].mean() < 1.08
        assert (outcome.sizes[58:, 0] < outcome.sizes[49, 0]).all()


def test_measured_profiles_with_dips_and_kinks_are_survived() -> None:
    """yolov3 takes less for 8 samples than for 6; the K80's ResNet-18 is not affine between 64 and 128."""
    for cluster in mixed_clusters(PROFILES):
        truth = ProfileTruth(cluster.profiles, noise=0.05, factors=cluster.slowdowns[None], seed=1)
        bounds = truth.bounds()
        outcome = simulate_bsp(
            truth, Fitted(), global_batch_size=cluster.global_batch_size, iterations=120, bounds=bounds
        )
        for x in outcome.sizes:
            assert bounds.admit(x, cluster.global_batch_size)
        quiet = np.array([truth.quiet_times_s(0, x).max() for x in outcome.sizes])
        assert np.median(quiet[20:] / outcome.oracle_s[20:]) < 1.1, cluster.name
        assert moves(outcome)[20:].sum() <= 6, cluster.name


def test_caps_and_granularity_hold() -> None:
    profile = read_pollux(PROFILES / "pollux")["imagenet"]
    truth = ProfileTruth([profile] * 3, noise=0.1, factors=[[1, 2, 4]], seed=2)
    bounds = Bounds(np.array([0, 8, 8]), np.array([96, 200, 200]), 8)
    outcome = simulate_bsp(truth, Fitted(), global_batch_size=240, iterations=60, bounds=bounds)
    for x in outcome.sizes:
        assert bounds.admit(x, 240)


def test_the_state_survives_a_checkpoint_before_and_after_a_move() -> None:
    policy = Fitted()
    truth = ModelTruth(base=AffineTimes(np.zeros(2), np.zeros(2), np.array([1e-3, 2e-3])), noise=np.zeros(2))
    decisions: list[Decision] = []
    simulate_bsp(truth, policy, global_batch_size=64, iterations=3, on_decision=decisions.append)
    assert decisions[0].moved
    problem = Problem(64, Bounds.default(2, 64))
    states = [policy.init(problem)]
    for decision, current in zip(decisions, ([32, 32], [43, 21], [43, 21]), strict=True):
        _, state = policy.propose(problem, states[-1], decision.reports, np.array(current))
        states.append(state)
    for state in states:
        again = policy.load(json.loads(json.dumps(policy.dump(state), allow_nan=False)))
        assert repr(again) == repr(state)


@pytest.mark.parametrize("wrong", [{"certainty": -1.0}, {"elasticity_spread": 0.0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Fitted(**wrong)
