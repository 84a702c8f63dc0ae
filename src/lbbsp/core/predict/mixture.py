"""A mixture of predictors, each weighted by how well it has forecast this worker lately."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lbbsp.core.predict.adaptive_ema import AdaptiveEma
from lbbsp.core.predict.autoregressive import AutoRegressive
from lbbsp.core.predict.base import Observation, Predictor, SpreadState, update_spread
from lbbsp.core.predict.change import ChangeState, watch
from lbbsp.core.predict.last import LastValue
from lbbsp.core.types import FloatArray, Forecast
from lbbsp.errors import ConfigurationError

__all__ = ["Mixture", "MixtureState"]


def _experts() -> tuple[Predictor[Any], ...]:
    return (LastValue(), AdaptiveEma(), AutoRegressive(order=3), AutoRegressive(order=6))


@dataclass(frozen=True, slots=True)
class MixtureState:
    """Of J experts and W workers.

    Args:
        experts: each one's own state.
        forecasts: of the next speed, samples/s, shape ``(J, W)``.
        losses: discounted sums of squared errors, shape ``(J, W)``.
        seen: discounted number of errors, shape ``(W,)``.
        errors: of the mixture's forecast.
        change: whether a worker's speed seems to have changed for good.
    """

    experts: tuple[Any, ...]
    forecasts: FloatArray
    losses: FloatArray
    seen: FloatArray
    errors: SpreadState
    change: ChangeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    r"""The mean of several predictors' forecasts, weighted by the likelihood of their recent errors.

    With discounted sums of squared errors :math:`L_j` over a discounted number n of iterations, and the least of
    them :math:`L^*`, expert j weighs

    .. math:: w_j \propto \exp\!\left(-\frac{n}{2} \left(\frac{L_j}{L^*} - 1\right)\right)

    (normal errors, the variance being the best expert's).  Whoever forecasts a worker best, and for as long as it
    does, decides: moving averages for noise, autoregression where speeds come back or go on.

    A change point puts the past aside: after two speeds in a row far off, on the same side, the forecast is the mean
    of the speeds since, until the experts have caught up (`lbbsp.core.predict.change`).

    Args:
        experts: the predictors.
        memory: discount of an error an iteration, in (0, 1).

    Raises:
        ConfigurationError: no expert, or ``memory`` outside (0, 1).

    Source: A. E. Raftery, M. Karny, P. Ettler, "Online prediction under model uncertainty via dynamic model
    averaging", Technometrics 52(1), 2010.

    Example:
        >>> predictor = Mixture()
        >>> state = predictor.init(1)
        >>> for v in [100.0, 104.0, 97.0, 101.0, 99.0] * 8 + [25.0, 25.0]:  # steady, then it jumps
        ...     state = predictor.step(state, Observation.of_speed(np.array([v])))
        >>> bool(20 < predictor.forecast(state).mean[0] < 32)
        True
    """

    experts: tuple[Predictor[Any], ...] = field(default_factory=_experts)
    memory: float = 0.99

    def __post_init__(self) -> None:
        if not self.experts:
            raise ConfigurationError("experts=(): give one or more predictors")
        if not 0 < self.memory < 1:
            raise ConfigurationError(f"memory={self.memory}: must lie in (0, 1)")

    def init(self, workers: int) -> MixtureState:
        """Nothing known."""
        bank = (len(self.experts), workers)
        return MixtureState(
            tuple(expert.init(workers) for expert in self.experts),
            np.full(bank, np.nan),
            np.zeros(bank),
            np.zeros(workers),
            SpreadState.init(workers),
            ChangeState.init(workers),
        )

    def step(self, state: MixtureState, observation: Observation) -> MixtureState:
        """Judge the experts by the new speed and let each take it in; NaN leaves a worker as it is."""
        v = observation.speed
        error = v - state.forecasts
        foretold = self.forecast(state).mean
        change = watch(state.change, v, foretold, state.errors)
        judged = np.isfinite(error).all(axis=0)
        decay = np.where(change.just_now, 0.0, np.where(judged, self.memory, 1.0))
        experts = tuple(e.step(s, observation) for e, s in zip(self.experts, state.experts, strict=True))
        return MixtureState(
            experts,
            np.stack([e.forecast(s).mean for e, s in zip(self.experts, experts, strict=True)]),
            decay * state.losses + np.where(judged & ~change.just_now, error, 0.0) ** 2,
            decay * state.seen + (judged & ~change.just_now),
            update_spread(state.errors, v, foretold),
            change,
        )

    @staticmethod
    def _combined(state: MixtureState, forecasts: FloatArray) -> FloatArray:
        least = state.losses.min(axis=0)
        # While none has erred all weigh the same; the tiny number makes one that never errs beat all that do.
        ratio = (state.losses - least) / np.maximum(least, 1e-300)
        weights = np.exp(-np.minimum(state.seen * ratio / 2.0, 700.0))
        # Around one of the forecasts, so that the mean of equal ones is that one to the last bit.
        mean: FloatArray = forecasts[0] + (weights * (forecasts - forecasts[0])).sum(axis=0) / weights.sum(axis=0)
        return mean

    def forecast(self, state: MixtureState, *, steps: int = 1) -> Forecast:
        """The weighted mean of the experts' forecasts ``steps`` ahead."""
        forecasts = state.forecasts
        if steps > 1:
            pairs = zip(self.experts, state.experts, strict=True)
            forecasts = np.stack([e.forecast(s, steps=steps).mean for e, s in pairs])
        mean = state.change.applied(self._combined(state, forecasts))
        return Forecast(mean, state.errors.around(mean))

    def dump(self, state: MixtureState) -> dict[str, list[float]]:
        """Plain numbers for a checkpoint; an expert's have its number before their names."""
        saved = {
            "losses": state.losses.ravel().tolist(),
            "seen": state.seen.tolist(),
            "square": state.errors.square.tolist(),
            "count": state.errors.count.tolist(),
            **{f"change.{name}": values for name, values in state.change.dump().items()},
        }
        for number, (expert, inner) in enumerate(zip(self.experts, state.experts, strict=True)):
            saved |= {f"{number}.{name}": values for name, values in expert.dump(inner).items()}
        return saved

    def load(self, saved: dict[str, list[float]]) -> MixtureState:
        """The state from `dump`.

        Raises:
            ConfigurationError: it was saved with another number of experts.
        """
        seen = np.array(saved["seen"], dtype=np.float64)
        bank = (len(self.experts), seen.size)
        losses = np.array(saved["losses"], dtype=np.float64)
        if losses.size != bank[0] * bank[1]:
            raise ConfigurationError(
                f"the saved state has {losses.size // max(seen.size, 1)} experts, this mixture {bank[0]}; "
                "load it with the experts that it was saved with"
            )
        experts = tuple(
            expert.load({n.partition(".")[2]: v for n, v in saved.items() if n.partition(".")[0] == str(number)})
            for number, expert in enumerate(self.experts)
        )
        return MixtureState(
            experts,
            np.stack([e.forecast(s).mean for e, s in zip(self.experts, experts, strict=True)]),
            losses.reshape(bank),
            seen,
            SpreadState(
                np.array(saved["square"], dtype=np.float64),
                np.array(saved["count"], dtype=np.float64),
            ),
            ChangeState.load({n.removeprefix("change."): v for n, v in saved.items() if n.startswith("change.")}),
        )
