"""Every predictor keeps the contract; each does what it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lbbsp.core.predict import AdaptiveEma, Ema, LastValue, Observation, Predictor
from lbbsp.errors import ConfigurationError
from lbbsp.testing import PredictorContract


class TestLastValue(PredictorContract):
    predictor = LastValue()


class TestEma(PredictorContract):
    predictor = Ema(alpha=0.3)


class TestAdaptiveEma(PredictorContract):
    predictor = AdaptiveEma()


def forecasts(predictor: Predictor[Any], speeds: np.ndarray) -> np.ndarray:
    """One step ahead, after each speed."""
    state, out = predictor.init(1), []
    for v in speeds:
        state = predictor.step(state, Observation.of_speed(np.array([v])))
        out.append(float(predictor.forecast(state).mean[0]))
    return np.array(out)


def test_ema_is_its_recursion() -> None:
    assert forecasts(Ema(alpha=0.25), np.array([8.0, 16.0, 0.5])).tolist() == [8.0, 10.0, 7.625]
    assert forecasts(LastValue(), np.array([8.0, 16.0, 0.5])).tolist() == [8.0, 16.0, 0.5]


def noisy(level: float, n: int, seed: int) -> np.ndarray:
    """A level with 5% noise."""
    return level * (1 + 0.05 * np.random.default_rng(seed).standard_normal(n))


@pytest.mark.parametrize("seed", range(5))
def test_adaptive_ema_damps_noise_and_follows_jumps(seed: int) -> None:
    """Under steady noise it is far steadier than the last value; three iterations after a jump it is there."""
    steady = noisy(100, 200, seed)
    error = np.abs(forecasts(AdaptiveEma(), steady)[50:-1] - 100).mean()
    assert error < 0.45 * np.abs(forecasts(LastValue(), steady)[50:-1] - 100).mean()
    jump = np.concatenate([noisy(100, 40, seed), noisy(25, 4, seed + 100)])
    assert abs(forecasts(AdaptiveEma(), jump)[42] - 25) < 5


@pytest.mark.parametrize("speed", [1517.596653380028, 0.1, 1e-300, 3e17])
def test_the_first_forecast_is_the_first_speed_to_the_bit(speed: float) -> None:
    predictor = AdaptiveEma()
    state = predictor.step(predictor.init(1), Observation.of_speed(np.array([speed])))
    assert predictor.forecast(state).mean.tolist() == [speed]


def test_a_single_outlier_moves_little() -> None:
    speeds = np.concatenate([noisy(100, 60, 1), [30.0], noisy(100, 3, 2)])
    assert forecasts(AdaptiveEma(), speeds)[-1] > 90


def test_spread_is_the_errors_standard_deviation() -> None:
    predictor, state = LastValue(), LastValue().init(1)
    for v in noisy(100, 400, 3):
        state = predictor.step(state, Observation.of_speed(np.array([v])))
    assert predictor.forecast(state).spread[0] == pytest.approx(5 * 2**0.5, rel=0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ema(alpha=0.0), "alpha=0.0"),
        (lambda: Ema(alpha=1.5), "alpha=1.5"),
        (lambda: AdaptiveEma(rates=()), "rates"),
        (lambda: AdaptiveEma(rates=(0.5, 2.0)), "rates"),
        (lambda: AdaptiveEma(memory=1.0), "memory=1.0"),
    ],
)
def test_bad_options(make: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()  # type: ignore[operator]


def test_a_state_of_other_rates_is_refused() -> None:
    saved = AdaptiveEma().dump(AdaptiveEma().init(1))
    with pytest.raises(ConfigurationError, match="rates"):
        AdaptiveEma(rates=(0.5, 1.0)).load(saved)
