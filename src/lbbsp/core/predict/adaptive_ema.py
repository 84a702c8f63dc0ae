"""Adaptive EMA: a bank of moving averages, weighted by how well each has forecast lately.

Steady speeds under noise want a slow average, speeds that jump or drift a fast one, and a run has spells of
both.  So averages at several rates run side by side, and the forecast is their mean, weighted by the likelihood
of their recent errors.  When a speed jumps, the slow averages' errors grow at once and the weight is with the
fast ones an iteration later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.core.predict.base import Observation, SpreadState, update_spread
from lbbsp.core.types import FloatArray, Forecast
from lbbsp.errors import ConfigurationError

__all__ = ["AdaptiveEma", "AdaptiveEmaState"]


@dataclass(frozen=True, slots=True)
class AdaptiveEmaState:
    """The bank, for J rates and W workers.

    Args:
        levels: each average, samples/s, NaN before the first speed, shape ``(J, W)``.
        losses: discounted sums of squared errors, shape ``(J, W)``.
        seen: discounted number of errors, shape ``(W,)``.
        count: speeds seen, shape ``(W,)``.
        mean: the combined forecast, samples/s, shape ``(W,)``.
        errors: of the combined forecast.
    """

    levels: FloatArray
    losses: FloatArray
    seen: FloatArray
    count: FloatArray
    mean: FloatArray
    errors: SpreadState


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveEma:
    r"""The weighted mean of moving averages ``m_j <- m_j + alpha_j (v - m_j)``.

    With errors ``e_j = v - m_j``, discounted sums ``L_j = sum_k lambda^{n-k} e_j^2`` and their effective number
    ``N = sum_k lambda^{n-k}``, average j has the weight ``exp(-N (L_j / min L - 1) / 2)``, the likelihood of
    Gaussian errors with the best average's variance.  Until a rate's own
    memory is filled, its average is the plain mean of what was seen.

    Args:
        rates: alpha_j, each in (0, 1], ascending.
        memory: lambda, in (0, 1): how long errors count, about ``1 / (1 - lambda)`` iterations.

    Raises:
        ConfigurationError: a rate or the memory is out of its range.

    Source: dynamic model averaging with forgetting, Raftery, Karny and Ettler, "Online prediction under model
    uncertainty via dynamic model averaging", Technometrics 52(1), 2010.

    Example:
        >>> predictor = AdaptiveEma()
        >>> state = predictor.init(1)
        >>> for v in [100.0, 104.0, 97.0, 101.0, 99.0] * 8 + [25.0, 25.0]:  # steady, then it jumps
        ...     state = predictor.step(state, Observation.of_speed(np.array([v])))
        >>> bool(24 < predictor.forecast(state).mean[0] < 30)
        True
    """

    rates: tuple[float, ...] = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
    memory: float = 0.99

    def __post_init__(self) -> None:
        if not self.rates or not all(0 < rate <= 1 for rate in self.rates):
            raise ConfigurationError(f"rates={self.rates}: give one or more, each in (0, 1]")
        if not 0 < self.memory < 1:
            raise ConfigurationError(f"memory={self.memory}: must lie in (0, 1)")

    def init(self, workers: int) -> AdaptiveEmaState:
        """Nothing known."""
        bank = (len(self.rates), workers)
        zero = np.zeros(workers)
        return AdaptiveEmaState(
            np.full(bank, np.nan),
            np.zeros(bank),
            zero,
            zero,
            np.full(workers, np.nan),
            SpreadState.init(workers),
        )

    def step(self, state: AdaptiveEmaState, observation: Observation) -> AdaptiveEmaState:
        """Judge the averages by the new speed, then move them towards it; NaN leaves a worker as it is."""
        v = observation.speed
        known = np.isfinite(v)
        judged = known & (state.count > 0)
        error = np.where(judged, v - state.levels, 0.0)
        decay = np.where(judged, self.memory, 1.0)
        count = state.count + known
        rate = np.maximum(np.array(self.rates)[:, None], 1.0 / np.maximum(count, 1.0))
        levels = np.where(known & ~judged, v, state.levels + rate * error)
        losses, seen = decay * state.losses + error**2, decay * state.seen + judged
        return AdaptiveEmaState(
            levels=levels,
            losses=losses,
            seen=seen,
            count=count,
            mean=self._combined(levels, losses, seen),
            errors=update_spread(state.errors, v, state.mean),
        )

    @staticmethod
    def _combined(levels: FloatArray, losses: FloatArray, seen: FloatArray) -> FloatArray:
        """The levels' mean, weighted by how likely each one's errors are."""
        least = losses.min(axis=0)
        # While none has erred all weigh the same; the tiny number makes one that never errs beat all that do.
        ratio = (losses - least) / np.maximum(least, 1e-300)
        weights = np.exp(-np.minimum(seen * ratio / 2.0, 700.0))
        # Around one of the levels, so that the mean of equal levels is that level to the last bit.
        mean: FloatArray = levels[0] + (weights * (levels - levels[0])).sum(axis=0) / weights.sum(axis=0)
        return mean

    def forecast(self, state: AdaptiveEmaState, *, steps: int = 1) -> Forecast:
        """The weighted level, whatever ``steps`` is."""
        return Forecast(state.mean, state.errors.around(state.mean))

    def dump(self, state: AdaptiveEmaState) -> dict[str, list[float]]:
        """Plain numbers for a checkpoint; NaN levels of unseen workers are told from the count."""
        return {
            "levels": np.nan_to_num(state.levels).ravel().tolist(),
            "losses": state.losses.ravel().tolist(),
            "seen": state.seen.tolist(),
            "count": state.count.tolist(),
            "square": state.errors.square.tolist(),
            "errors": state.errors.count.tolist(),
        }

    def load(self, saved: dict[str, list[float]]) -> AdaptiveEmaState:
        """The state from `dump`."""
        numbers = {name: np.array(values, dtype=np.float64) for name, values in saved.items()}
        bank = (len(self.rates), numbers["count"].size)
        if numbers["levels"].size != bank[0] * bank[1]:
            raise ConfigurationError(
                f"the saved state has {numbers['levels'].size} levels, {bank[0]} rates need {bank[0] * bank[1]}; "
                "load it with the rates that it was saved with"
            )
        levels = np.where(numbers["count"] > 0, numbers["levels"].reshape(bank), np.nan)
        losses = numbers["losses"].reshape(bank)
        return AdaptiveEmaState(
            levels=levels,
            losses=losses,
            seen=numbers["seen"],
            count=numbers["count"],
            mean=self._combined(levels, losses, numbers["seen"]),
            errors=SpreadState(numbers["square"], numbers["errors"]),
        )
