"""A policy held to few shapes keeps balancing, and never uses more."""

from __future__ import annotations

import numpy as np
import pytest

from lbbsp.core.policy import FewShapes, Fitted, Problem, Proportional
from lbbsp.core.predict import LastValue
from lbbsp.core.types import Bounds, Report, Reports
from lbbsp.errors import ConfigurationError
from lbbsp.sim.bsp import SpeedTruth, simulate_bsp
from lbbsp.testing import PolicyContract
from tests.support.policies import RandomSizes


class TestFewShapes(PolicyContract):
    policy = FewShapes(policy=Proportional(), most=4)


class TestFewFittedShapes(PolicyContract):
    policy = FewShapes(policy=Fitted(), most=3)


def speeds(iterations: int = 200) -> np.ndarray:
    """Four workers whose speeds jump every ten iterations."""
    levels = np.random.default_rng(3).uniform(20, 100, (iterations // 10, 4))
    return np.repeat(levels, 10, axis=0)


@pytest.mark.parametrize("most", [2, 3, 8])
def test_no_worker_sees_more_sizes_than_allowed(most: int) -> None:
    for policy in (Proportional(), RandomSizes(1), Fitted()):
        outcome = simulate_bsp(
            SpeedTruth(speeds()), FewShapes(policy=policy, most=most), global_batch_size=256, iterations=200
        )
        assert len({tuple(x) for x in outcome.sizes.tolist()}) == most
        assert max(len(set(column)) for column in outcome.sizes.T.tolist()) <= most


def test_with_few_shapes_it_still_balances() -> None:
    truth = SpeedTruth(np.repeat([[90, 30], [30, 90], [90, 30], [60, 60]], 25, axis=0))
    last = Proportional(predictor=LastValue(), risk=0.0)  # an average would spend shapes on the way
    few = simulate_bsp(truth, FewShapes(policy=last, most=3), global_batch_size=96, iterations=100)
    free = simulate_bsp(truth, last, global_batch_size=96, iterations=100)
    equal = 1 / np.mean([1.5, 1.5, 1.5, 1.0])
    assert equal < few.efficiency <= free.efficiency + 1e-9
    assert few.efficiency > 0.9


def test_a_new_shape_must_earn_its_cost() -> None:
    truth = SpeedTruth(np.tile([70.0, 60.0], (50, 1)))  # equal 0.53 s, balanced 0.49 s: 0.04 s an iteration
    for cost_s, moves in ((0.0, 1), (3.0, 1), (5.0, 0)):
        policy = FewShapes(policy=Proportional(), cost_s=cost_s, horizon=100)
        assert simulate_bsp(truth, policy, global_batch_size=64, iterations=50).moves == moves


def test_shapes_beyond_a_cap_learned_since_are_not_taken_up_again() -> None:
    policy = FewShapes(policy=Proportional(predictor=LastValue()), most=2)
    wide, narrow = Problem(64, Bounds.default(2, 64)), Problem(64, Bounds(np.array([1, 1]), np.array([40, 64])))
    state = policy.init(wide)
    for current in ([56, 8], [32, 32]):
        _, state = policy.propose(wide, state, _reports(current, [10.0, 10.0]), np.array(current))
    assert state.used == ((56, 8), (32, 32))
    proposal, _ = policy.propose(narrow, state, _reports([32, 32], [90.0, 10.0]), np.array([32, 32]))
    assert proposal is not None
    assert proposal.sizes.tolist() == [32, 32]
    proposal, _ = policy.propose(wide, state, _reports([32, 32], [90.0, 10.0]), np.array([32, 32]))
    assert proposal is not None
    assert proposal.sizes.tolist() == [56, 8]


def _reports(sizes: list[int], speeds: list[float]) -> Reports:
    return Reports.of(
        Report(0, x, x / v, v, 0.0, float("nan"), float("nan"), 0) for x, v in zip(sizes, speeds, strict=True)
    )


@pytest.mark.parametrize("wrong", [{"most": 1}, {"cost_s": -1.0}, {"horizon": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        FewShapes(policy=Proportional(), **wrong)  # type: ignore[arg-type]
