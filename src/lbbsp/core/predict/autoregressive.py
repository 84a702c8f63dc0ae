"""Autoregression on log speeds, fitted as it goes by recursive least squares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.core.predict.base import Observation, SpreadState, update_spread
from lbbsp.core.types import FloatArray, Forecast
from lbbsp.errors import ConfigurationError

__all__ = ["AutoRegressive", "AutoRegressiveState"]

_INTERCEPT = 0.1  # the regressor beside the lags; small, so that the constant is learned slowly
_LONGEST_MEAN = 500.0
_MARGIN = 1.0  # a forecast stays within e times the range of the last n speeds


@dataclass(frozen=True, slots=True)
class AutoRegressiveState:
    """Of W workers, with n lags and q = n + 1 coefficients.

    Args:
        lags: the last n log speeds, newest first, shape ``(W, n)``; filled with the first one at the start.
        coefficients: shape ``(W, q)``.
        inverse: P, the inverse of the discounted sums of squares, shape ``(W, q, q)``.
        mean: slow mean of the log speeds, shape ``(W,)``.
        count: speeds seen, shape ``(W,)``.
        errors: of the one-step forecasts.
    """

    lags: FloatArray
    coefficients: FloatArray
    inverse: FloatArray
    mean: FloatArray
    count: FloatArray
    errors: SpreadState


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRegressive:
    r"""AR(n) with a constant: with :math:`y = \ln v` and its slow mean :math:`\mu`,

    .. math:: y_{k+1} - \mu = b + \sum_{j=0}^{n-1} a_j (y_{k-j} - \mu)

    The coefficients start at the last value (:math:`a_0 = 1`, the others 0) and follow the run by recursive least
    squares with forgetting: ``g = P x / (lambda + x' P x)``, ``a <- a + g e``, ``P <- (P - g x' P) / lambda``.
    Several steps ahead it feeds on its own forecasts.  With differences instead of deviations this would be
    ARIMA(n, 1, 0), which cannot revert to a mean.

    Args:
        order: n, lags.
        forgetting: lambda in (0, 1]; 0.999 weighs 1,000 iterations.
        prior: P at the start, times the identity: how fast the coefficients leave the last value.

    Raises:
        ConfigurationError: an option lies outside its range.

    Source: L. Ljung, "System Identification", 2nd ed., 1999, section 11.2.

    Example:
        >>> predictor = AutoRegressive(order=1, prior=100.0)
        >>> state = predictor.init(1)
        >>> for v in [100.0, 50.0] * 40:  # falls after every rise
        ...     state = predictor.step(state, Observation.of_speed(np.array([v])))
        >>> bool(95 < predictor.forecast(state).mean[0] < 105)
        True
    """

    order: int = 6
    forgetting: float = 0.999
    prior: float = 1.0

    def __post_init__(self) -> None:
        if self.order < 1:
            raise ConfigurationError(f"order={self.order}: must be 1 or more lags")
        if not 0 < self.forgetting <= 1:
            raise ConfigurationError(f"forgetting={self.forgetting}: must lie in (0, 1]")
        if not 0 < self.prior < np.inf:
            raise ConfigurationError(f"prior={self.prior}: must be positive")

    def init(self, workers: int) -> AutoRegressiveState:
        """Nothing known."""
        q = self.order + 1
        coefficients = np.zeros((workers, q))
        coefficients[:, 0] = 1.0
        inverse = np.repeat(self.prior * np.eye(q)[None], workers, axis=0)
        zero = np.zeros(workers)
        return AutoRegressiveState(
            np.zeros((workers, self.order)), coefficients, inverse, zero, zero, SpreadState.init(workers)
        )

    def step(self, state: AutoRegressiveState, observation: Observation) -> AutoRegressiveState:
        """Learn from the forecast's error, then take the new speed in; NaN leaves a worker as it is."""
        v = observation.speed
        known = np.isfinite(v) & (v > 0)
        first = known & (state.count == 0)
        learns = known & ~first
        y = np.log(np.where(known, v, 1.0))
        x = self._regressors(state.lags, state.mean)
        foretold = self._next(state, state.lags)
        error = np.where(learns, y - foretold, 0.0)
        px = np.einsum("wij,wj->wi", state.inverse, x)
        gain = px / (self.forgetting + (x * px).sum(axis=1))[:, None]
        learned = (state.inverse - gain[:, :, None] * px[:, None, :]) / self.forgetting
        # Steady speeds teach nothing and forgetting would let P grow without bound.
        learned = np.where(np.trace(learned, axis1=1, axis2=2)[:, None, None] < 1e6, learned, state.inverse)
        lags = np.where(first[:, None], y[:, None], np.concatenate([y[:, None], state.lags[:, :-1]], axis=1))
        count = state.count + known
        mean = np.where(first, y, state.mean + (y - state.mean) / np.clip(count, 1.0, _LONGEST_MEAN))
        return AutoRegressiveState(
            lags=np.where(known[:, None], lags, state.lags),
            coefficients=state.coefficients + np.where(learns[:, None], gain * error[:, None], 0.0),
            inverse=np.where(learns[:, None, None], learned, state.inverse),
            mean=np.where(known, mean, state.mean),
            count=count,
            errors=update_spread(state.errors, v, np.where(learns, np.exp(foretold), np.nan)),
        )

    @staticmethod
    def _regressors(lags: FloatArray, mean: FloatArray) -> FloatArray:
        return np.concatenate([lags - mean[:, None], np.full((mean.size, 1), _INTERCEPT)], axis=1)

    def _next(self, state: AutoRegressiveState, lags: FloatArray) -> FloatArray:
        """The next log speed after ``lags``, within a margin of their range."""
        y = state.mean + (state.coefficients * self._regressors(lags, state.mean)).sum(axis=1)
        return np.asarray(np.clip(y, lags.min(axis=1) - _MARGIN, lags.max(axis=1) + _MARGIN))

    def forecast(self, state: AutoRegressiveState, *, steps: int = 1) -> Forecast:
        """The speed ``steps`` ahead; the spread is that of one step, times the root of ``steps``."""
        lags = state.lags
        for _ in range(steps):
            lags = np.concatenate([self._next(state, lags)[:, None], lags[:, :-1]], axis=1)
        mean = np.where(state.count > 0, np.exp(np.clip(lags[:, 0], -690.0, 690.0)), np.nan)
        return Forecast(mean, state.errors.around(mean) * np.sqrt(float(steps)))

    def dump(self, state: AutoRegressiveState) -> dict[str, list[float]]:
        """Plain numbers for a checkpoint."""
        return {
            "lags": state.lags.ravel().tolist(),
            "coefficients": state.coefficients.ravel().tolist(),
            "inverse": state.inverse.ravel().tolist(),
            "mean": state.mean.tolist(),
            "count": state.count.tolist(),
            "square": state.errors.square.tolist(),
            "errors": state.errors.count.tolist(),
        }

    def load(self, saved: dict[str, list[float]]) -> AutoRegressiveState:
        """The state from `dump`.

        Raises:
            ConfigurationError: it was saved with another order.
        """
        numbers = {name: np.array(values, dtype=np.float64) for name, values in saved.items()}
        workers, q = numbers["count"].size, self.order + 1
        if numbers["coefficients"].size != workers * q:
            raise ConfigurationError(
                f"the saved state has {numbers['coefficients'].size} coefficients of {workers} workers, order "
                f"{self.order} needs {workers * q}; load it with the order that it was saved with"
            )
        return AutoRegressiveState(
            numbers["lags"].reshape(workers, self.order),
            numbers["coefficients"].reshape(workers, q),
            numbers["inverse"].reshape(workers, q, q),
            numbers["mean"],
            numbers["count"],
            SpreadState(numbers["square"], numbers["errors"]),
        )
