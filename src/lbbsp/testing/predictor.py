"""The predictor contract as a test class to inherit."""

from __future__ import annotations

import copy
import json
from typing import Any, ClassVar

import numpy as np

from lbbsp.core.predict import Observation, Predictor
from lbbsp.core.types import FloatArray

__all__ = ["PredictorContract"]


class PredictorContract:
    """Inherit from it in a test module, under a name that starts with Test, and set ``predictor``."""

    predictor: ClassVar[Predictor[Any]]

    def _speeds(self, workers: int, iterations: int = 60, seed: int = 0) -> FloatArray:
        """Positive speeds with noise, a jump, and gaps."""
        rng = np.random.default_rng(seed)
        level = rng.uniform(1, 1000, workers) * np.where(np.arange(iterations) < 30, 1.0, 0.3)[:, None]
        speeds = level * np.exp(0.1 * rng.standard_normal((iterations, workers)))
        speeds[rng.random((iterations, workers)) < 0.1] = np.nan
        return np.asarray(speeds)

    def _run(self, speeds: FloatArray, *, cpu: float = np.nan) -> tuple[Any, FloatArray, FloatArray]:
        state = self.predictor.init(speeds.shape[1])
        means, spreads = [], []
        for row in speeds:
            extra = np.full(row.shape, cpu)
            state = self.predictor.step(state, Observation(row, extra, extra))
            forecast = self.predictor.forecast(state)
            means.append(forecast.mean)
            spreads.append(forecast.spread)
        return state, np.array(means), np.array(spreads)

    def test_nothing_is_forecast_before_the_first_speed(self) -> None:
        """NaN before, finite and positive after."""
        state = self.predictor.init(3)
        assert np.isnan(self.predictor.forecast(state).mean).all()
        state = self.predictor.step(state, Observation.of_speed(np.array([np.nan, 5.0, np.nan])))
        assert np.isnan(self.predictor.forecast(state).mean).tolist() == [True, False, True]

    def test_forecasts_are_finite_and_positive(self) -> None:
        """Whatever positive speeds came, for one and two steps ahead."""
        speeds = self._speeds(5)
        state, means, spreads = self._run(speeds)
        seen = np.isfinite(speeds).cumsum(axis=0) > 0
        assert (means[seen] > 0).all()
        assert np.isfinite(means[seen]).all()
        assert (spreads >= 0).all()
        assert np.isfinite(spreads).all()
        assert (self.predictor.forecast(state, steps=2).mean > 0).all()

    def test_a_constant_speed_is_forecast_exactly(self) -> None:
        """To rounding, after a while."""
        _, means, _ = self._run(np.full((40, 2), 37.5))
        assert np.allclose(means[-1], 37.5, rtol=1e-6)

    def test_a_missing_speed_leaves_the_mean(self) -> None:
        """I6: NaN teaches nothing."""
        state, means, _ = self._run(self._speeds(4))
        after = self.predictor.step(state, Observation.of_speed(np.full(4, np.nan)))
        assert self.predictor.forecast(after).mean.tolist() == means[-1].tolist()

    def test_workers_do_not_influence_one_another(self) -> None:
        """Permuting workers permutes their forecasts; one alone gets the same."""
        speeds, order = self._speeds(4), [2, 0, 3, 1]
        _, means, spreads = self._run(speeds)
        _, permuted, permuted_spreads = self._run(speeds[:, order])
        assert permuted.tolist() == means[:, order].tolist() or np.array_equal(
            permuted, means[:, order], equal_nan=True
        )
        assert np.array_equal(permuted_spreads, spreads[:, order], equal_nan=True)
        _, alone, _ = self._run(speeds[:, 1:2])
        assert np.allclose(alone[:, 0], means[:, 1], rtol=1e-12, equal_nan=True)

    def test_step_leaves_its_state_alone(self) -> None:
        """States are values: one can be kept and gone on from."""
        state, _, _ = self._run(self._speeds(3))
        before = self.predictor.dump(copy.deepcopy(state))
        self.predictor.step(state, Observation.of_speed(np.array([1.0, 2.0, 3.0])))
        self.predictor.forecast(state)
        assert self.predictor.dump(state) == before

    def test_the_state_survives_a_checkpoint(self) -> None:
        """Through JSON, strict about NaN, before and after observations."""
        state, _, _ = self._run(self._speeds(3))
        for one in (self.predictor.init(3), state):
            again = self.predictor.load(json.loads(json.dumps(self.predictor.dump(one), allow_nan=False)))
            next_speed = Observation.of_speed(np.array([4.0, 5.0, 6.0]))
            kept = self.predictor.forecast(self.predictor.step(one, next_speed))
            carried = self.predictor.forecast(self.predictor.step(again, next_speed))
            assert kept.mean.tolist() == carried.mean.tolist()
            assert kept.spread.tolist() == carried.spread.tolist()
