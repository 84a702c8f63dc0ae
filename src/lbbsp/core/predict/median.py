"""Median of a window: deaf to single outliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.core.predict.base import Observation, SpreadState, update_spread
from lbbsp.core.types import FloatArray, Forecast
from lbbsp.errors import ConfigurationError

__all__ = ["Median", "MedianState"]


@dataclass(frozen=True, slots=True)
class MedianState:
    """The last n speeds, newest first, NaN where there were fewer, shape ``(n, W)``, and the errors seen."""

    window: FloatArray
    errors: SpreadState


@dataclass(frozen=True, slots=True, kw_only=True)
class Median:
    """The median of the last ``window`` speeds, for any number of steps ahead.

    It leaves out fewer than half a window of outliers, and follows a jump half a window late.

    Args:
        window: n, speeds.

    Raises:
        ConfigurationError: ``window < 1``.

    Source: J. W. Tukey, "Exploratory Data Analysis", 1977, chapter 7 (running medians).

    Example:
        >>> median = Median(window=3)
        >>> state = median.init(1)
        >>> for v in (10.0, 11.0, 500.0):
        ...     state = median.step(state, Observation.of_speed(np.array([v])))
        >>> median.forecast(state).mean.tolist()
        [11.0]
    """

    window: int = 5

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigurationError(f"window={self.window}: must be 1 or more speeds")

    def init(self, workers: int) -> MedianState:
        """Nothing known."""
        return MedianState(np.full((self.window, workers), np.nan), SpreadState.init(workers))

    def step(self, state: MedianState, observation: Observation) -> MedianState:
        """Let the oldest speed go for the new one; NaN leaves a worker as it is."""
        v = observation.speed
        moved = np.concatenate([v[None], state.window[:-1]])
        errors = update_spread(state.errors, v, self.forecast(state).mean)
        return MedianState(np.where(np.isnan(v), state.window, moved), errors)

    def forecast(self, state: MedianState, *, steps: int = 1) -> Forecast:
        """The median, whatever ``steps`` is."""
        ordered = np.sort(state.window, axis=0)  # NaN last
        count = np.isfinite(ordered).sum(axis=0)
        workers = np.arange(count.size)
        low, high = np.maximum(count - 1, 0) // 2, count // 2
        high = np.minimum(high, self.window - 1)
        mean = (ordered[low, workers] + ordered[np.where(count % 2, low, high), workers]) / 2
        mean = np.where(count > 0, mean, np.nan)
        return Forecast(mean, state.errors.around(mean))

    def dump(self, state: MedianState) -> dict[str, list[float]]:
        """Plain numbers for a checkpoint; NaN as 0, which no speed is."""
        return {
            "window": np.nan_to_num(state.window).ravel().tolist(),
            "square": state.errors.square.tolist(),
            "count": state.errors.count.tolist(),
        }

    def load(self, saved: dict[str, list[float]]) -> MedianState:
        """The state from `dump`.

        Raises:
            ConfigurationError: it was saved with another window.
        """
        square = np.array(saved["square"], dtype=np.float64)
        window = np.array(saved["window"], dtype=np.float64)
        if window.size != self.window * square.size:
            raise ConfigurationError(
                f"the saved state has {window.size} speeds of {square.size} workers, window={self.window} needs "
                f"{self.window * square.size}; load it with the window that it was saved with"
            )
        window = window.reshape(self.window, square.size)
        return MedianState(
            np.where(window > 0, window, np.nan), SpreadState(square, np.array(saved["count"], dtype=np.float64))
        )
