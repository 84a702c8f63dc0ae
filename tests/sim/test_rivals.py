"""The rivals' rules do what their descriptions say, within the sum and the bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lbbsp.core.time_models import AffineTimes
from lbbsp.errors import ConfigurationError
from lbbsp.sim.bsp import SpeedTruth, simulate_bsp
from lbbsp.sim.rivals import Dbs, Lbb, OmniLearn
from lbbsp.sim.truth import ModelTruth
from lbbsp.testing import PolicyContract


class TestDbs(PolicyContract):
    policy = Dbs(epoch=3)


class TestLbb(PolicyContract):
    policy = Lbb()


class TestOmniLearn(PolicyContract):
    policy = OmniLearn(window=2)


STEADY = SpeedTruth(np.tile([60.0, 20.0], (60, 1)))


def test_dbs_moves_at_the_ends_of_epochs_only() -> None:
    outcome = simulate_bsp(STEADY, Dbs(epoch=20), global_batch_size=80, iterations=60)
    assert outcome.sizes[19].tolist() == [40, 40]
    assert outcome.sizes[20].tolist() == [60, 20]
    assert outcome.moves == 1


def test_omnilearn_corrects_in_proportion_and_rests_within_its_dead_band() -> None:
    outcome = simulate_bsp(STEADY, OmniLearn(window=4), global_batch_size=80, iterations=60)
    assert outcome.sizes[3].tolist() == [40, 40]
    assert outcome.sizes[4].tolist() == [60, 20]
    assert (outcome.sizes[4:] == outcome.sizes[4]).all()


def test_lbb_solves_each_iteration_and_finds_fixed_costs() -> None:
    models = AffineTimes(np.zeros(2), np.array([0.1, 0.1]), np.array([1e-3, 3e-3]))
    exact = simulate_bsp(ModelTruth(base=models, noise=np.zeros(2)), Lbb(), global_batch_size=200, iterations=10)
    assert exact.iteration_s[-1] == pytest.approx(exact.oracle_s[-1], rel=0.02)
    noisy = simulate_bsp(ModelTruth(base=models, noise=np.full(2, 0.05)), Lbb(), global_batch_size=200, iterations=100)
    assert noisy.moves > 20  # no threshold


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [(Dbs, {"epoch": 0}), (Lbb, {"window": 1}), (OmniLearn, {"window": 0}), (OmniLearn, {"dead_band": 1.0})],
)
def test_settings_that_make_no_sense_are_refused(rule: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        rule(**wrong)
