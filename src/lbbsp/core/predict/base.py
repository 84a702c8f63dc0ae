"""The predictor contract: an explicit state, one step an iteration, all workers at once.

A predictor is a frozen value object.  Its state is made by `init` and passed through `step`; nothing is
kept in the object, so a state can be saved, carried and replayed.  It works elementwise on arrays of shape
``(W,)``: beside a training process W is 1, in a manager or a simulator it is all workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from lbbsp.core.types import FloatArray, Forecast

__all__ = ["Observation", "Predictor", "SpreadState", "update_spread"]

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of an iteration when it ended; each of shape ``(W,)``.

    Args:
        speed: v_i in samples/s; NaN where no usable measurement was made (I6).
        cpu: c_i, available CPU (fraction); NaN if not measured.
        memory: m_i, available memory (fraction); NaN if not measured.
    """

    speed: FloatArray
    cpu: FloatArray
    memory: FloatArray

    @classmethod
    def of_speed(cls, speed: FloatArray) -> Observation:
        """An observation of speeds alone."""
        unknown = np.full(np.shape(speed), np.nan)
        return cls(np.asarray(speed, dtype=np.float64), unknown, unknown)


class Predictor(Protocol[State]):
    """Forecasts each worker's speed.

    The contract, checked by `lbbsp.testing.PredictorContract`:

    - before a worker's first usable speed its forecast is NaN, after it the mean is finite and positive;
    - an observation of NaN leaves a worker's mean as it is;
    - workers do not influence one another: permuting them permutes the forecasts;
    - `step` does not change the state that it is given;
    - the state survives `dump` and `load`.
    """

    def init(self, workers: int) -> State:
        """The state before any observation of ``workers`` workers."""
        ...

    def step(self, state: State, observation: Observation) -> State:
        """The state after one more iteration."""
        ...

    def forecast(self, state: State, *, steps: int = 1) -> Forecast:
        """The expected speeds ``steps`` iterations after the last observation, and their spread."""
        ...

    def dump(self, state: State) -> dict[str, list[float]]:
        """The state as plain finite numbers, for a checkpoint in any format."""
        ...

    def load(self, saved: dict[str, list[float]]) -> State:
        """The state from what `dump` gave."""
        ...


@dataclass(frozen=True, slots=True)
class SpreadState:
    """A running mean square of the forecasts' relative errors; ``count`` of errors seen. Each of shape ``(W,)``.

    Relative, for then the spread goes along when a speed jumps to another level.
    """

    square: FloatArray
    count: FloatArray

    @classmethod
    def init(cls, workers: int) -> SpreadState:
        """No error seen yet."""
        return cls(np.zeros(workers), np.zeros(workers))

    def around(self, mean: FloatArray) -> FloatArray:
        """Standard deviation of the error of a forecast of ``mean`` (samples/s); 0 before the first error."""
        return np.where(self.count > 0, np.sqrt(self.square) * mean, 0.0)


def update_spread(state: SpreadState, speed: FloatArray, forecast: FloatArray, *, window: int = 10) -> SpreadState:
    """Take the error of one more forecast into the running mean square; left out where either is NaN.

    The first ``window`` errors are averaged plainly, later ones with weight ``1 / window``.
    """
    error = speed / forecast - 1.0
    seen = np.isfinite(error)
    count = np.minimum(state.count + seen, float(window))
    change = (np.where(seen, error, 0.0) ** 2 - state.square) / np.maximum(count, 1.0)
    return SpreadState(np.where(seen, state.square + change, state.square), count)
