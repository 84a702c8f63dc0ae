"""NARX keeps the contract, learns what can be learnt, and is not used where it does not help."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lbbsp.core.predict import LastValue, Narx, NarxWeights, Observation
from lbbsp.core.types import FloatArray
from lbbsp.errors import ConfigurationError
from lbbsp.fitting import fit_narx, lagged
from lbbsp.testing import PredictorContract


class TestUnfitted(PredictorContract):
    predictor = Narx()


class TestFitted(PredictorContract):
    """With weights that foretell no change when nothing has changed."""

    predictor = Narx(
        weights=NarxWeights(
            w1=np.random.default_rng(0).standard_normal((3, 3)), b1=np.zeros(3), w2=np.ones(3), b2=0.0, scale=0.1
        ),
        exogenous=False,
    )


def loaded(iterations: int, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Speeds that follow the available CPU of the iteration before; the CPU jumps about."""
    rng = np.random.default_rng(seed)
    cpu = rng.uniform(0.2, 1.0, (iterations + 1, 3))
    speeds = 100 * cpu[:-1] * np.exp(0.02 * rng.standard_normal((iterations, 3)))
    return speeds, cpu[1:], np.full(speeds.shape, 0.5)


def squared(narx: Narx | LastValue, speeds: FloatArray, cpu: FloatArray, memory: FloatArray) -> float:
    state, total = narx.init(3), 0.0
    for k in range(len(speeds) - 1):
        state = narx.step(state, Observation(speeds[k], cpu[k], memory[k]))  # type: ignore[arg-type]
        total += float(((np.log(narx.forecast(state).mean) - np.log(speeds[k + 1])) ** 2).sum())  # type: ignore[arg-type]
    return total


def test_the_cpu_helps_where_it_foretells_the_speed() -> None:
    """With c its error is a small part of the last value's, and of its own without c."""
    speeds, cpu, memory = loaded(300)
    later = loaded(150, seed=1)
    with_c = fit_narx(Narx(exogenous=True), speeds, cpu, memory)
    without = fit_narx(Narx(exogenous=False), speeds, cpu, memory)
    last = squared(LastValue(), *later)
    assert squared(with_c, *later) < 0.2 * last
    assert squared(with_c, *later) < 0.4 * squared(without, *later)


def test_it_is_not_used_where_nothing_can_be_learnt() -> None:
    """The later part of the history decides; a change of regime there refuses the network."""
    rng = np.random.default_rng(2)
    walk = np.exp(0.1 * np.cumsum(rng.standard_normal((40, 2)), axis=0))
    noise = 100 * np.exp(rng.standard_normal((160, 2)))
    speeds = np.concatenate([noise, walk])
    nothing = np.full(speeds.shape, np.nan)
    assert fit_narx(Narx(exogenous=False), speeds, nothing, nothing).weights is None
    assert fit_narx(Narx(exogenous=False), noise, nothing[:160], nothing[:160]).weights is not None


def test_the_fit_is_least_squares_where_the_network_is_nearly_linear() -> None:
    """Against the solution of linear least squares: the change is a linear function of the last change."""
    rng = np.random.default_rng(3)
    z = np.zeros((400, 3))
    for k in range(2, 400):
        z[k] = z[k - 1] - 0.5 * (z[k - 1] - z[k - 2]) + 0.01 * rng.standard_normal(3)
    speeds, nothing = 100 * np.exp(z), np.full(z.shape, np.nan)
    narx = fit_narx(Narx(exogenous=False), speeds, nothing, nothing, penalty=1e-5)
    x, y = lagged(narx, speeds, nothing, nothing)
    linear = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    assert narx.weights is not None
    assert np.mean((narx.weights.apply(x) - y) ** 2) < 1.03 * np.mean((linear - y) ** 2)


def test_a_fitted_state_is_carried_on() -> None:
    speeds, cpu, memory = loaded(100)
    narx = fit_narx(Narx(), speeds, cpu, memory)
    state = narx.init(3)
    for k in range(20):
        state = narx.step(state, Observation(speeds[k], cpu[k], memory[k]))
    again = narx.load(json.loads(json.dumps(narx.dump(state), allow_nan=False)))
    assert narx.forecast(again).mean.tolist() == narx.forecast(state).mean.tolist()


def test_bad_options() -> None:
    speeds, cpu, memory = loaded(10)
    with pytest.raises(ConfigurationError, match="fit later"):
        fit_narx(Narx(), speeds, cpu, memory)
    with pytest.raises(ConfigurationError, match="give all as"):
        fit_narx(Narx(), speeds, cpu[:5], memory)
    with pytest.raises(ConfigurationError, match="hidden=0"):
        fit_narx(Narx(), speeds, cpu, memory, hidden=0)
    with pytest.raises(ConfigurationError, match="lags=1"):
        Narx(lags=1)
    weights = NarxWeights(w1=np.ones((2, 3)), b1=np.ones(2), w2=np.ones(2), b2=0.0, scale=1.0)
    with pytest.raises(ConfigurationError, match="take 3 inputs"):
        Narx(weights=weights)
    with pytest.raises(ConfigurationError, match="not finite"):
        NarxWeights(w1=np.full((2, 3), np.nan), b1=np.ones(2), w2=np.ones(2), b2=0.0, scale=1.0)
    with pytest.raises(ConfigurationError, match="load it with"):
        Narx(lags=3).load(Narx(lags=4).dump(Narx(lags=4).init(2)))
