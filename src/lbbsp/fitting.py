"""Fit a NARX network to the history of a run, off the step's path."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from lbbsp.core.predict import Observation
from lbbsp.core.predict.narx import Narx, NarxWeights
from lbbsp.core.types import FloatArray
from lbbsp.errors import ConfigurationError

__all__ = ["fit_narx", "lagged"]

LEAST_ROWS = 50
"""Fewer changes than this teach a network nothing."""


def lagged(narx: Narx, speeds: FloatArray, cpu: FloatArray, memory: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The network's inputs and the changes of log speed that followed, of all workers and iterations.

    Args:
        narx: says which inputs.
        speeds: samples/s, shape ``(K, W)``.
        cpu: available CPU, the same shape.
        memory: available memory, the same shape.

    Returns:
        Inputs of shape ``(N, D)`` and outcomes of shape ``(N,)``, in the order of the iterations.
    """
    if speeds.ndim != 2 or not (speeds.shape == cpu.shape == memory.shape):
        raise ConfigurationError(
            f"speeds {speeds.shape}, cpu {cpu.shape}, memory {memory.shape}: give all as (iterations, workers)"
        )
    state, inputs, outcomes = narx.init(speeds.shape[1]), [], []
    for k in range(speeds.shape[0]):
        if k >= narx.lags:
            change = np.log(speeds[k]) - state.last[:, 0]
            usable = np.isfinite(change)
            inputs.append(narx.regressors(state)[usable])
            outcomes.append(change[usable])
        state = narx.step(state, Observation(speeds[k], cpu[k], memory[k]))
    if not inputs or sum(map(len, outcomes)) < LEAST_ROWS:
        raise ConfigurationError(
            f"{speeds.shape[0]} iterations of {speeds.shape[1]} workers give fewer than {LEAST_ROWS} changes to learn "
            "from; go on with the incumbent and fit later"
        )
    return np.concatenate(inputs), np.concatenate(outcomes)


def fit_narx(
    narx: Narx,
    speeds: FloatArray,
    cpu: FloatArray,
    memory: FloatArray,
    *,
    hidden: int = 6,
    penalty: float = 1e-3,
    seed: int = 0,
    iterations: int = 200,
) -> Narx:
    r"""``narx`` with fitted weights, or without any where these do not beat the last value on later data.

    Minimises ``mean (y - f(x))^2 / 2 + penalty / 2 \sum w^2`` on standardised inputs by L-BFGS, over the first
    four fifths of the history; the last fifth then decides whether the network is used at all.

    Args:
        narx: the lags and inputs.
        speeds: samples/s, shape ``(K, W)``.
        cpu: available CPU, the same shape.
        memory: available memory, the same shape.
        hidden: H, units.
        penalty: of the squared weights, biases excepted.
        seed: of the first weights.
        iterations: of the search, at most.

    Raises:
        ConfigurationError: the shapes differ, the history is too short, or an option is out of range.

    Source: D. C. Liu, J. Nocedal, Mathematical Programming 45, 1989 (L-BFGS); weight decay after A. Krogh and
    J. Hertz, NIPS 1991.
    """
    if hidden < 1 or penalty < 0 or iterations < 1:
        raise ConfigurationError(
            f"hidden={hidden}, penalty={penalty}, iterations={iterations}: give 1 or more, 0 or more, 1 or more"
        )
    x, y = lagged(narx, speeds, cpu, memory)
    split = max(LEAST_ROWS // 2, int(0.8 * len(y)))
    centre, width = x[:split].mean(axis=0), x[:split].std(axis=0)
    width = np.where(width > 1e-9, width, 1.0)
    scale = float(max(y[:split].std(), 1e-9))
    z, target = (x[:split] - centre) / width, y[:split] / scale
    d = x.shape[1]

    def parts(theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        w1, rest = theta[: hidden * d].reshape(hidden, d), theta[hidden * d :]
        return w1, rest[:hidden], rest[hidden : 2 * hidden], float(rest[2 * hidden])

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        w1, b1, w2, b2 = parts(theta)
        unit = np.tanh(z @ w1.T + b1)
        error = (unit @ w2 + b2 - target) / len(target)
        back = error[:, None] * w2 * (1.0 - unit**2)
        value = 0.5 * len(target) * float(error @ error) + 0.5 * penalty * float((w1**2).sum() + (w2**2).sum())
        gradient = np.concatenate(
            [(back.T @ z + penalty * w1).ravel(), back.sum(axis=0), unit.T @ error + penalty * w2, [error.sum()]]
        )
        return value, gradient

    first = np.random.default_rng(seed).normal(0.0, 1.0 / np.sqrt(d), hidden * d + 2 * hidden + 1)
    found = minimize(loss, first, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    w1, b1, w2, b2 = parts(np.asarray(found.x))
    weights = NarxWeights(w1=w1 / width, b1=b1 - (w1 / width) @ centre, w2=w2, b2=b2, scale=scale)
    later, outcome = x[split:], y[split:]
    # Compared as the forecasts are: in log speed, within the margin that the forecast keeps.
    better = ((weights.apply(later) - outcome) ** 2).mean() < (outcome**2).mean() if len(outcome) else False
    return Narx(weights=weights if better else None, lags=narx.lags, exogenous=narx.exogenous)
