"""Auto: proportional on CPUs whatever their speeds do, fitted where time is not proportional to size."""

from __future__ import annotations

import numpy as np
import pytest

from lbbsp.core.policy import Auto, Proportional
from lbbsp.core.time_models import AffineTimes
from lbbsp.core.types import FloatArray
from lbbsp.engine import Decision
from lbbsp.errors import ConfigurationError
from lbbsp.sim.bsp import SpeedTruth, simulate_bsp
from lbbsp.sim.truth import ModelTruth
from lbbsp.testing import PolicyContract


class TestAuto(PolicyContract):
    policy = Auto()


class TestAutoThatDoubtsNothing(PolicyContract):
    """So that it changes over within the suite's runs."""

    policy = Auto(below=1.0, certainty=1e-9)


def speeds(kind: str, seed: int, workers: int, iterations: int = 300) -> FloatArray:
    rng = np.random.default_rng([seed, workers])
    shape, base = (iterations, workers), rng.uniform(20, 100, workers)
    noise = np.exp(0.1 * rng.standard_normal(shape))
    if kind == "noisy":
        return np.asarray(base * noise)
    if kind == "jumping":
        return np.asarray(base * np.repeat(np.exp(0.5 * rng.standard_normal((iterations // 15, workers))), 15, axis=0))
    if kind == "wandering":
        walk = 0.05 * np.cumsum(rng.standard_normal(shape), axis=0)
        return np.asarray(base * np.exp(np.clip(walk, -1, 1)))
    return np.asarray(base * np.where(rng.random(shape) < 0.03, 0.2, 1.0))


@pytest.mark.parametrize("kind", ["noisy", "jumping", "wandering", "stalls"])
@pytest.mark.parametrize("workers", [2, 4, 9])
def test_where_time_is_linear_it_is_proportional_sample_by_sample(kind: str, workers: int) -> None:
    truth = SpeedTruth(speeds(kind, 1, workers))
    auto = simulate_bsp(truth, Auto(), global_batch_size=64 * workers, iterations=300)
    proportional = simulate_bsp(truth, Proportional(), global_batch_size=64 * workers, iterations=300)
    assert auto.moves > 0
    np.testing.assert_array_equal(auto.sizes, proportional.sizes)


def test_fixed_costs_and_flat_parts_bring_the_fitted_times_and_say_so() -> None:
    models = AffineTimes(np.array([0.1, 0.1, 0, 0] * 2), np.full(8, 0.1), np.array([4, 1, 2, 1] * 2) * 1e-3)
    decisions: list[Decision] = []
    truth = ModelTruth(base=models, noise=np.full(8, 0.03))
    auto = simulate_bsp(truth, Auto(), global_batch_size=512, iterations=200, on_decision=decisions.append)
    assert "proportional: no sizes have been compared" in decisions[0].allocation.detail
    assert "fitted times: time against size has elasticity 0." in decisions[-1].allocation.detail
    proportional = simulate_bsp(truth, Proportional(), global_batch_size=512, iterations=200)
    assert auto.efficiency > 0.9
    assert auto.efficiency >= proportional.efficiency - 0.02
    settled = (np.diff(auto.sizes[20:], axis=0) != 0).any(axis=1)
    assert settled.sum() <= 3


def test_it_goes_back_where_forecasts_of_speed_do_better() -> None:
    """Fixed costs tell for the fitted times; then the speeds begin to change all the time."""
    calm = np.ones((60, 8))
    restless = speeds("jumping", 3, 8, iterations=240) / speeds("jumping", 3, 8, iterations=240).mean(axis=0)
    models = AffineTimes(np.zeros(8), np.full(8, 0.1), np.array([4, 1, 2, 1] * 2) * 1e-3)
    truth = ModelTruth(base=models, noise=np.full(8, 0.01), availability=np.concatenate([calm, restless]))
    decisions: list[Decision] = []
    simulate_bsp(truth, Auto(), global_batch_size=512, iterations=300, on_decision=decisions.append)
    told = [decision.allocation.detail for decision in decisions]
    assert "(fitted times" in told[50]
    assert any("(proportional: speeds' forecasts miss the times by" in detail for detail in told[60:])


@pytest.mark.parametrize("wrong", [{"below": 0.0}, {"certainty": 0.0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Auto(**wrong)  # type: ignore[arg-type]
