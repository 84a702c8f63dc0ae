"""Exponential moving average: a level that follows the speed at a fixed rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.core.predict.base import Observation, SpreadState, update_spread
from lbbsp.core.types import FloatArray, Forecast
from lbbsp.errors import ConfigurationError

__all__ = ["Ema", "EmaState"]


@dataclass(frozen=True, slots=True)
class EmaState:
    """The level m_i (samples/s, NaN before the first speed) and the error seen, each of shape ``(W,)``."""

    level: FloatArray
    errors: SpreadState


@dataclass(frozen=True, slots=True, kw_only=True)
class Ema:
    """``m <- alpha v + (1 - alpha) m``; the forecast is m for any number of steps ahead.

    Args:
        alpha: weight of the newest speed, in (0, 1]; 1 is the last value.

    Raises:
        ConfigurationError: ``alpha`` lies outside (0, 1].

    Source: R. G. Brown, "Exponential Smoothing for Predicting Demand", 1956; a reference predictor of
    Chen et al., SoCC 2020, section 3.3.

    Example:
        >>> ema = Ema(alpha=0.5)
        >>> state = ema.init(1)
        >>> for v in (10.0, 20.0):
        ...     state = ema.step(state, Observation.of_speed(np.array([v])))
        >>> ema.forecast(state).mean.tolist()
        [15.0]
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ConfigurationError(f"alpha={self.alpha}: must lie in (0, 1]")

    def init(self, workers: int) -> EmaState:
        """Nothing known."""
        return EmaState(np.full(workers, np.nan), SpreadState.init(workers))

    def step(self, state: EmaState, observation: Observation) -> EmaState:
        """Move the level towards the observed speed; keep it where none was observed."""
        v = observation.speed
        error = v - state.level
        moved = np.where(np.isnan(state.level), v, state.level + self.alpha * error)
        return EmaState(np.where(np.isnan(v), state.level, moved), update_spread(state.errors, v, state.level))

    def forecast(self, state: EmaState, *, steps: int = 1) -> Forecast:
        """The level, whatever ``steps`` is."""
        return Forecast(state.level, state.errors.around(state.level))

    def dump(self, state: EmaState) -> dict[str, list[float]]:
        """Plain numbers for a checkpoint."""
        return {
            "level": np.nan_to_num(state.level).tolist(),
            "known": np.isfinite(state.level).astype(np.float64).tolist(),
            "square": state.errors.square.tolist(),
            "count": state.errors.count.tolist(),
        }

    def load(self, saved: dict[str, list[float]]) -> EmaState:
        """The state from `dump`."""
        return EmaState(
            np.where(np.array(saved["known"]) > 0, np.array(saved["level"], dtype=np.float64), np.nan),
            SpreadState(np.array(saved["square"], dtype=np.float64), np.array(saved["count"], dtype=np.float64)),
        )
