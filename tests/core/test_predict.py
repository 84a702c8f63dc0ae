"""Every predictor keeps the contract; each does what it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lbbsp.core.predict import AdaptiveEma, AutoRegressive, Ema, LastValue, Median, Mixture, Observation, Predictor
from lbbsp.errors import ConfigurationError
from lbbsp.testing import PredictorContract


class TestLastValue(PredictorContract):
    predictor = LastValue()


class TestEma(PredictorContract):
    predictor = Ema(alpha=0.3)


class TestAdaptiveEma(PredictorContract):
    predictor = AdaptiveEma()


class TestMedian(PredictorContract):
    predictor = Median(window=4)


class TestAutoRegressive(PredictorContract):
    predictor = AutoRegressive()


class TestMixture(PredictorContract):
    predictor = Mixture()


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


def autoregressive_speeds(a: float, iterations: int = 3000, seed: int = 1) -> np.ndarray:
    """Speeds around 100 samples/s whose logarithms are an AR(1) process."""
    rng, y = np.random.default_rng(seed), [0.0]
    for noise in 0.05 * rng.standard_normal(iterations):
        y.append(a * y[-1] + noise)
    return np.asarray(100.0 * np.exp(np.array(y)))


@pytest.mark.parametrize("a", [0.9, 0.5, -0.5])
def test_autoregression_finds_the_coefficient(a: float) -> None:
    predictor = AutoRegressive(order=1, forgetting=1.0, prior=100.0)
    state = predictor.init(1)
    for v in autoregressive_speeds(a):
        state = predictor.step(state, Observation.of_speed(np.array([v])))
    assert state.coefficients[0, 0] == pytest.approx(a, abs=0.06)
    assert predictor.forecast(state).spread[0] == pytest.approx(5.0, rel=0.6)


def test_autoregression_is_least_squares() -> None:
    """Without forgetting, recursive least squares is ridge regression on all pairs so far."""
    y = np.log(autoregressive_speeds(0.7, 200))
    predictor = AutoRegressive(order=2, forgetting=1.0, prior=0.5)
    state, rows, targets = predictor.init(1), [], []
    for k, value in enumerate(y):
        if k:
            rows.append(AutoRegressive._regressors(state.lags, state.mean)[0])
            targets.append(value - state.mean[0])
        state = predictor.step(state, Observation.of_speed(np.exp(np.array([value]))))
    x, start = np.array(rows), np.array([1.0, 0.0, 0.0])
    ridge = np.linalg.solve(x.T @ x + np.eye(3) / 0.5, x.T @ np.array(targets) + start / 0.5)
    assert state.coefficients[0] == pytest.approx(ridge, rel=1e-6)


def test_two_steps_ahead_feeds_on_the_first() -> None:
    predictor = AutoRegressive(order=1, forgetting=1.0, prior=100.0)
    state = predictor.init(1)
    for v in [100.0, 50.0] * 100:  # falls after every rise
        state = predictor.step(state, Observation.of_speed(np.array([v])))
    assert predictor.forecast(state).mean[0] == pytest.approx(100.0, rel=0.05)
    assert predictor.forecast(state, steps=2).mean[0] == pytest.approx(50.0, rel=0.05)
    mixture = Mixture(experts=(LastValue(), predictor))
    inner = mixture.init(1)
    for v in [100.0, 50.0] * 100:
        inner = mixture.step(inner, Observation.of_speed(np.array([v])))
    assert mixture.forecast(inner, steps=2).mean[0] == pytest.approx(50.0, rel=0.05)


@pytest.mark.parametrize("factor", [0.5, 0.25, 2.0, 4.0])
@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1])
def test_the_default_follows_a_jump_within_two_iterations(factor: float, noise: float) -> None:
    rng = np.random.default_rng(3)
    speeds = 100.0 * np.exp(noise * rng.standard_normal(80)) * np.where(np.arange(80) < 70, 1.0, factor)
    ahead = forecasts(Mixture(), speeds)
    assert ahead[71] == pytest.approx(100.0 * factor, rel=0.2 + noise)  # after two speeds of the new level


@pytest.mark.parametrize("outlier", [10.0, 30.0, 300.0])
def test_the_default_is_not_moved_much_by_an_outlier(outlier: float) -> None:
    rng = np.random.default_rng(4)
    speeds = 100.0 * np.exp(0.03 * rng.standard_normal(60))
    speeds[50] = outlier
    ahead = forecasts(Mixture(), speeds)
    # No predictor can tell an outlier from a jump before the next speed; then it is over.
    assert ahead[51:].mean() == pytest.approx(100.0, rel=0.15)
    assert ahead[53] == pytest.approx(100.0, rel=0.2)


def test_the_mixture_is_about_as_good_as_its_best_expert() -> None:
    noisy = 100.0 * np.exp(0.1 * np.random.default_rng(5).standard_normal(600))
    for speeds in (noisy, autoregressive_speeds(-0.6, 600), autoregressive_speeds(0.95, 600)):
        errors = [
            np.sqrt(np.mean((forecasts(p, speeds)[300:-1] - speeds[301:]) ** 2))
            for p in (Mixture(), LastValue(), AdaptiveEma(), AutoRegressive(order=3), AutoRegressive(order=6))
        ]
        assert errors[0] <= 1.03 * min(errors[1:])


def test_median_is_numpys() -> None:
    rng = np.random.default_rng(6)
    speeds = rng.uniform(1, 9, 30)
    for window in (1, 2, 5):
        ahead = forecasts(Median(window=window), speeds)
        assert ahead.tolist() == [float(np.median(speeds[max(0, k + 1 - window) : k + 1])) for k in range(30)]


@pytest.mark.parametrize(
    ("make", "saved_by"),
    [
        (AutoRegressive(order=2), AutoRegressive(order=3)),
        (Median(window=2), Median(window=3)),
        (Mixture(experts=(Ema(),)), Mixture(experts=(Ema(), Ema()))),
    ],
)
def test_a_state_of_other_options_is_refused(make: Predictor[Any], saved_by: Predictor[Any]) -> None:
    with pytest.raises(ConfigurationError, match="that it was saved with"):
        make.load(saved_by.dump(saved_by.init(2)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: AutoRegressive(order=0),
        lambda: AutoRegressive(forgetting=0.0),
        lambda: AutoRegressive(prior=np.inf),
        lambda: Median(window=0),
        lambda: Mixture(experts=()),
        lambda: Mixture(memory=1.0),
    ],
)
def test_bad_options_of_the_others(make: Any) -> None:
    with pytest.raises(ConfigurationError, match="="):
        make()
