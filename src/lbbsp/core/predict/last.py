"""Last value: the next speed is the one just seen."""

from __future__ import annotations

from dataclasses import dataclass

from lbbsp.core.predict.base import Observation
from lbbsp.core.predict.ema import Ema, EmaState
from lbbsp.core.types import Forecast

__all__ = ["LastValue"]

_EMA = Ema(alpha=1.0)


@dataclass(frozen=True, slots=True)
class LastValue:
    """The memoryless reference predictor: `Ema` with ``alpha = 1``, under the name that papers use.

    Source: the baseline of Chen et al., SoCC 2020, section 5.3.
    """

    def init(self, workers: int) -> EmaState:
        """Nothing known."""
        return _EMA.init(workers)

    def step(self, state: EmaState, observation: Observation) -> EmaState:
        """Take the observed speed; keep the one before where none was observed."""
        return _EMA.step(state, observation)

    def forecast(self, state: EmaState, *, steps: int = 1) -> Forecast:
        """The last speed, whatever ``steps`` is."""
        return _EMA.forecast(state, steps=steps)

    def dump(self, state: EmaState) -> dict[str, list[float]]:
        """Plain numbers for a checkpoint."""
        return _EMA.dump(state)

    def load(self, saved: dict[str, list[float]]) -> EmaState:
        """The state from `dump`."""
        return _EMA.load(saved)
