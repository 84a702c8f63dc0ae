"""The paper's rule for GPU clusters: steps, oscillation, rest and restart."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbbsp.core.allocate import equal_split, leader_straggler
from lbbsp.core.policy import LeaderStraggler, Problem
from lbbsp.core.time_models import AffineTimes
from lbbsp.core.types import Bounds, Report, Reports
from lbbsp.errors import ConfigurationError
from lbbsp.testing import PolicyContract


class TestLeaderStraggler(PolicyContract):
    policy = LeaderStraggler()


def reports(k: int, sizes: Any, times: Any, memory: Any = np.nan) -> Reports:
    rows = np.full((len(sizes), Report.WIDTH), np.nan)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 7] = k, sizes, times, 0
    rows[:, 3], rows[:, 4], rows[:, 6] = np.maximum(sizes, 1) / np.asarray(times), 0, memory
    return Reports.from_rows(rows)


def play(policy: LeaderStraggler, problem: Problem, models: AffineTimes, iterations: int, noise: float = 0.0) -> Any:
    """Sizes of each iteration, all proposals taken."""
    rng = np.random.default_rng(5)
    state, x = policy.init(problem), equal_split(problem.global_batch_size, problem.bounds)
    seen = []
    for k in range(iterations):
        seen.append(x)
        times = models.time_s(x) * np.exp(noise * rng.standard_normal(x.size))
        proposal, state = policy.propose(problem, state, reports(k, x, times), x)
        x = x if proposal is None else proposal.sizes
        assert problem.bounds.admit(x, problem.global_batch_size)
    return np.array(seen), state


@given(st.data(), st.integers(2, 9), st.integers(1, 4), st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_a_step_keeps_the_sum_and_the_bounds(data: st.DataObject, w: int, g: int, step: int) -> None:
    units = np.array(data.draw(st.lists(st.integers(1, 20), min_size=w, max_size=w)))
    slack = np.array(data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=w, max_size=w)))
    times = np.array(data.draw(st.lists(st.floats(0.01, 10), min_size=w, max_size=w)))
    bounds = Bounds(np.maximum(units - slack[:, 0], 0) * g, (units + slack[:, 1]) * g, g)
    taken = leader_straggler(times, units * g, step, bounds)
    assert bounds.admit(taken.sizes, int(units.sum()) * g)
    if taken.leader is not None:
        assert taken.moved <= -(-step // g) * g
        assert times[taken.leader] <= times[taken.straggler]
        assert taken.sizes[taken.leader] == units[taken.leader] * g + taken.moved


def test_two_linear_workers_come_within_tolerance_and_rest() -> None:
    policy, problem = LeaderStraggler(), Problem(128, Bounds.default(2, 128))
    models = AffineTimes(np.zeros(2), np.array([0.02, 0.02]), np.array([0.001, 0.003]))
    sizes, state = play(policy, problem, models, 60)
    times = models.time_s(sizes[-1])
    assert (times.max() - times.min()) / times.max() <= policy.tolerance
    assert (sizes[40:] == sizes[40]).all()
    assert state.window > policy.window  # it oscillated on the way, and grew calmer
    assert state.step < policy.init(problem).step


def test_flat_workers_are_left_alone() -> None:
    """Equal flat devices under noise: a step gains nothing, so no endless shuffling to and fro."""
    models = AffineTimes(np.full(4, 0.1), np.zeros(4), np.full(4, 1e-4))
    sizes, _ = play(LeaderStraggler(), Problem(256, Bounds.default(4, 256)), models, 400, noise=0.03)
    moves = (np.diff(sizes, axis=0) != 0).any(axis=1)
    assert moves[100:].sum() <= 3


def test_a_flat_straggler_gives_what_it_can_and_then_there_is_rest() -> None:
    models = AffineTimes(np.array([0.3, 0.0]), np.zeros(2), np.array([1e-4, 1e-3]))
    problem = Problem(128, Bounds(np.array([8, 8]), np.array([128, 128])))
    sizes, state = play(LeaderStraggler(), problem, models, 100)
    assert (sizes[50:] == sizes[50]).all()
    assert not np.isnan(state.settled_at)


def test_it_starts_again_when_the_spread_grows() -> None:
    policy, problem = LeaderStraggler(), Problem(128, Bounds.default(2, 128))
    state, x = policy.init(problem), np.array([64, 64])
    for k in range(20):
        proposal, state = policy.propose(problem, state, reports(k, x, [0.10, 0.101]), x)
        assert proposal is None
    moved = []
    for k in range(20, 20 + 2 * policy.longest):
        proposal, state = policy.propose(problem, state, reports(k, x, [0.10, 0.2]), x)
        moved.append(None if proposal is None else proposal.sizes.tolist())
    assert [42, 86] not in moved
    assert [86, 42] in moved


def test_a_leader_needs_memory_and_room() -> None:
    policy = LeaderStraggler()
    x = np.array([30, 30, 30])
    problem = Problem(90, Bounds(np.array([1, 1, 1]), np.array([30, 90, 90])))
    state = policy.init(problem)
    given_ = reports(0, x, [0.1, 0.15, 0.3], memory=[0.5, 0.01, 0.5])
    proposal, _ = policy.propose(problem, state, given_, x)
    assert proposal is None  # worker 0 is full, worker 1 short of memory, worker 2 the straggler
    proposal, _ = policy.propose(problem, state, reports(0, x, [0.1, 0.15, 0.3]), x)
    assert proposal is not None
    assert proposal.sizes.tolist() == [30, 40, 20]


def test_other_sizes_than_those_in_force_open_the_window_anew() -> None:
    policy, problem = LeaderStraggler(window=2), Problem(128, Bounds.default(2, 128))
    x, state = np.array([64, 64]), policy.init(problem)
    _, state = policy.propose(problem, state, reports(0, x, [0.1, 0.2]), x)
    assert state.count == 1
    _, state = policy.propose(problem, state, reports(1, [10, 10], [0.01, 0.02]), x)
    assert (state.count, state.total_s.tolist()) == (0, [0, 0])


def test_the_state_survives_a_checkpoint() -> None:
    policy, problem = LeaderStraggler(), Problem(128, Bounds.default(2, 128))
    for times in ([0.1, 0.1], [0.1, 0.2]):
        _, state = policy.propose(problem, policy.init(problem), reports(0, [64, 64], times), np.array([64, 64]))
        again = policy.load(json.loads(json.dumps(policy.dump(state))))
        assert repr(again) == repr(state)


@pytest.mark.parametrize("wrong", [{"window": 0}, {"window": 20}, {"step": 0.0}, {"tolerance": 1.0}, {"restart": -0.1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        LeaderStraggler(**wrong)
