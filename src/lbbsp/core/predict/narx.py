"""NARX: one hidden layer on the last speeds and on the available CPU and memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.core.predict.base import Observation, SpreadState, update_spread
from lbbsp.core.types import FloatArray, Forecast
from lbbsp.errors import ConfigurationError

__all__ = ["Narx", "NarxState", "NarxWeights"]

MARGIN = 1.0
"""How far, in log speed, a forecast may lie from the last speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NarxWeights:
    """A fitted network: ``y = w2 tanh(w1 x + b1) + b2`` with H hidden units and D inputs.

    Args:
        w1: shape ``(H, D)``.
        b1: shape ``(H,)``.
        w2: shape ``(H,)``.
        b2: the last bias.
        scale: of the outcome, in log speed.

    Raises:
        ConfigurationError: the shapes do not fit, or a number is not finite.
    """

    w1: FloatArray
    b1: FloatArray
    w2: FloatArray
    b2: float
    scale: float

    def __post_init__(self) -> None:
        hidden = self.w1.shape[0]
        if self.w1.ndim != 2 or self.b1.shape != (hidden,) or self.w2.shape != (hidden,):
            raise ConfigurationError(
                f"weights of shapes {self.w1.shape}, {self.b1.shape}, {self.w2.shape}: give (H, D), (H,), (H,)"
            )
        if not all(np.isfinite(part).all() for part in (self.w1, self.b1, self.w2, self.b2, self.scale)):
            raise ConfigurationError("a weight is not finite; fit the network again")

    def apply(self, inputs: FloatArray) -> FloatArray:
        """The change of the log speed that the network expects, for inputs of shape ``(N, D)``."""
        hidden = np.tanh(inputs @ self.w1.T + self.b1)
        return np.asarray(self.scale * (hidden @ self.w2 + self.b2))


@dataclass(frozen=True, slots=True)
class NarxState:
    """The inputs of W workers, newest first, with n lags.

    Args:
        last: log speeds, NaN before the first, shape ``(W, n)``.
        cpu: available CPU, 0 where unknown, shape ``(W, n + 1)``.
        memory: available memory, the same.
        errors: of the forecast.
    """

    last: FloatArray
    cpu: FloatArray
    memory: FloatArray
    errors: SpreadState


@dataclass(frozen=True, slots=True, kw_only=True)
class Narx:
    r"""``log v_{k+1} = log v_k + f(log v_k - log v_{k-1}, ..., c_{k+1}, ..., c_{k+1-n}, m_{k+1}, ...)``.

    The network foretells the change from the last speed, so that weights of zero are the last value.  It is fitted
    elsewhere (`lbbsp.fitting`); until it is, the forecast is the last value.  The newest c and m are those observed
    with the last speed, as the ones of the next iteration are not yet there when sizes are decided.

    Args:
        weights: fitted; None for the last value.
        lags: n, 2 or more.
        exogenous: whether c and m are inputs.

    Raises:
        ConfigurationError: the weights are for another number of inputs, or there are fewer than two lags.

    Source: Chen et al., SoCC 2020, section 3.3; T. Lin, B. Horne, P. Tino, C. Giles, "Learning long-term dependencies
    in NARX recurrent neural networks", IEEE Transactions on Neural Networks 7(6), 1996.

    Example:
        >>> narx = Narx()
        >>> state = narx.step(narx.init(1), Observation.of_speed(np.array([8.0])))
        >>> narx.forecast(state).mean.round(9).tolist()
        [8.0]
    """

    weights: NarxWeights | None = None
    lags: int = 4
    exogenous: bool = True

    def __post_init__(self) -> None:
        if self.lags < 2:
            raise ConfigurationError(f"lags={self.lags}: must be 2 or more")
        if self.weights is not None and self.weights.w1.shape[1] != self.inputs:
            raise ConfigurationError(
                f"the weights take {self.weights.w1.shape[1]} inputs, lags={self.lags} give {self.inputs}; "
                "fit them with the same lags"
            )

    @property
    def inputs(self) -> int:
        """D."""
        return self.lags - 1 + (2 * self.lags if self.exogenous else 0)

    def init(self, workers: int) -> NarxState:
        """Nothing known."""
        zero = np.zeros((workers, self.lags))
        return NarxState(np.full((workers, self.lags), np.nan), zero, zero, SpreadState.init(workers))

    def regressors(self, state: NarxState) -> FloatArray:
        """The network's inputs, shape ``(W, D)``: the last changes of the log speed, then c and m."""
        parts = [state.last[:, :-1] - state.last[:, 1:]]
        if self.exogenous:
            parts += [state.cpu, state.memory]
        return np.concatenate(parts, axis=1)

    def step(self, state: NarxState, observation: Observation) -> NarxState:
        """Put the observation before the earlier ones; where the speed is NaN nothing changes."""
        v = observation.speed
        known = np.isfinite(v)
        log_v = np.log(np.where(known, v, 1.0))[:, None]
        first = np.isnan(state.last[:, :1])

        def pushed(new: FloatArray, old: FloatArray) -> FloatArray:
            moved = np.where(first, new, np.concatenate([new, old[:, :-1]], axis=1))
            return np.where(known[:, None], moved, old)

        return NarxState(
            pushed(log_v, state.last),
            pushed(np.nan_to_num(observation.cpu)[:, None], state.cpu),
            pushed(np.nan_to_num(observation.memory)[:, None], state.memory),
            update_spread(state.errors, v, self._mean(state)),
        )

    def _mean(self, state: NarxState) -> FloatArray:
        log_v = state.last[:, 0]
        if self.weights is not None:
            change = self.weights.apply(self.regressors(state))
            log_v = log_v + np.minimum(np.maximum(change, -MARGIN), MARGIN)
        return np.exp(log_v)

    def forecast(self, state: NarxState, *, steps: int = 1) -> Forecast:
        """One step ahead; further ahead the same, as c and m are not known there."""
        mean = self._mean(state)
        return Forecast(mean, state.errors.around(mean))

    def dump(self, state: NarxState) -> dict[str, list[float]]:
        """Plain numbers for a checkpoint; a worker without a speed is told by ``known``."""
        return {
            "known": np.isfinite(state.last[:, 0]).astype(np.float64).tolist(),
            "last": np.nan_to_num(state.last).ravel().tolist(),
            "cpu": state.cpu.ravel().tolist(),
            "memory": state.memory.ravel().tolist(),
            "square": state.errors.square.tolist(),
            "count": state.errors.count.tolist(),
        }

    def load(self, saved: dict[str, list[float]]) -> NarxState:
        """The state from `dump`.

        Raises:
            ConfigurationError: it was saved with other lags.
        """
        numbers = {name: np.array(values, dtype=np.float64) for name, values in saved.items()}
        shape = (numbers["known"].size, self.lags)
        if numbers["last"].size != shape[0] * shape[1]:
            raise ConfigurationError(
                f"the saved state has {numbers['last'].size} lagged speeds of {shape[0]} workers, lags={self.lags}; "
                "load it with the lags that it was saved with"
            )
        last = np.where(numbers["known"][:, None] > 0, numbers["last"].reshape(shape), np.nan)
        return NarxState(
            last,
            numbers["cpu"].reshape(shape),
            numbers["memory"].reshape(shape),
            SpreadState(numbers["square"], numbers["count"]),
        )
