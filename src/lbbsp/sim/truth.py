"""A cluster of time models, whose speeds are scaled by an availability and blurred by noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lbbsp.core.time_models import AffineTimes, TableTimes, TimeModels, largest_by_bisection
from lbbsp.core.types import FloatArray, IntArray
from lbbsp.errors import ConfigurationError

__all__ = ["ModelTruth", "ScaledTimes", "wandering"]


class ScaledTimes:
    """``factor_i T_i(x)`` for any time models.

    Args:
        models: the T_i.
        factor: positive, shape ``(W,)``.
    """

    def __init__(self, models: TimeModels, factor: FloatArray) -> None:
        self._models, self._factor = models, factor

    def time_s(self, sizes: IntArray) -> FloatArray:
        """Seconds at ``sizes``."""
        return np.asarray(self._models.time_s(sizes) * self._factor)

    def time_of(self, workers: IntArray, sizes: IntArray) -> FloatArray:
        """Seconds for pairs."""
        return np.asarray(self._models.time_of(workers, sizes) * self._factor[workers])

    def largest_within(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """By bisection."""
        return largest_by_bisection(self, limit_s, lo, hi)

    def sizes_near(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """By bisection too."""
        return largest_by_bisection(self, limit_s, lo, hi)

    def limit_guess_s(self, total: int) -> tuple[float, float]:
        """None."""
        return math.nan, math.nan


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelTruth:
    r"""``T_i^k(x) = T_i(x) / a_i^k \cdot \exp(s_i z_i^k - s_i^2 / 2)`` with z standard normal.

    The noise has mean 1 and is unforeseeable; the oracle knows the rest.

    Args:
        base: T_i.
        availability: a_i^k > 0, the share of its speed that a worker has, shape ``(K, W)``; None for all of it.
        noise: s_i >= 0, the relative standard deviation of a time, shape ``(W,)``.
        seed: of the noise.
        cpu: c_i^k as the workers sense it, shape ``(K, W)``; None where they do not.
        columns: which of the workers are in; all by default.
        start: the iteration that counts as the first.

    Raises:
        ConfigurationError: an availability is not positive and finite, or a noise negative.

    Example:
        >>> truth = ModelTruth(base=AffineTimes([0.5, 0.0], [0.0, 0.0], [0.01, 0.01]), noise=np.zeros(2))
        >>> truth.times_s(0, np.array([20, 20])).tolist()
        [0.5, 0.2]
    """

    base: AffineTimes | TableTimes
    noise: FloatArray
    availability: FloatArray | None = None
    seed: int = 0
    cpu: FloatArray | None = None
    columns: IntArray | None = None
    start: int = 0

    def __post_init__(self) -> None:
        if not ((self.noise >= 0) & np.isfinite(self.noise)).all():
            raise ConfigurationError(f"noise {self.noise}: must be 0 or more, a share of the time")
        a = self.availability
        if a is not None and not (np.isfinite(a) & (a > 0)).all():
            k, i = (int(n) for n in np.argwhere(~(np.isfinite(a) & (a > 0)))[0])
            raise ConfigurationError(
                f"availability of worker {i} in iteration {k} is {a[k, i]}: must be positive and finite"
            )

    def select(self, columns: IntArray, start: int) -> ModelTruth:
        """The same cluster from iteration ``start`` on, with the workers ``columns`` alone."""
        return ModelTruth(
            base=self.base,
            noise=self.noise,
            availability=self.availability,
            seed=self.seed,
            cpu=self.cpu,
            columns=columns,
            start=self.start + start,
        )

    @cached_property
    def _models(self) -> AffineTimes | TableTimes:
        """The base models of the workers that are in."""
        if self.columns is None:
            return self.base
        if isinstance(self.base, TableTimes):
            return TableTimes([self.base.table[int(i)] for i in self.columns])
        i = self.columns
        return AffineTimes(self.base.flat_s[i], self.base.fixed_s[i], self.base.per_sample_s[i])

    @property
    def workers(self) -> int:
        """W."""
        return self.noise.size if self.columns is None else self.columns.size

    def _in(self, row: FloatArray) -> FloatArray:
        return row if self.columns is None else row[self.columns]

    def _row(self, iteration: int) -> int:
        k = self.start + iteration
        if self.availability is not None and not 0 <= k < self.availability.shape[0]:
            raise ConfigurationError(
                f"iteration {k}: the cluster is described for {self.availability.shape[0]} iterations; simulate fewer"
            )
        return k

    def models(self, iteration: int) -> TimeModels:
        """The models of that iteration without noise."""
        k = self._row(iteration)
        if self.availability is None:
            return self._models
        factor = 1.0 / self._in(self.availability[k])
        if isinstance(self._models, TableTimes):
            return ScaledTimes(self._models, factor)
        m = self._models
        return AffineTimes(m.flat_s * factor, m.fixed_s * factor, m.per_sample_s * factor)

    def times_s(self, iteration: int, sizes: IntArray) -> FloatArray:
        """The model's times, with noise."""
        times = self.models(iteration).time_s(sizes)
        if not self.noise.any():
            return times
        z = np.random.default_rng([self.seed, self._row(iteration)]).standard_normal(self.noise.size)
        return np.asarray(times * self._in(np.exp(self.noise * z - self.noise**2 / 2)))

    def sensed(self, iteration: int) -> tuple[FloatArray, FloatArray]:
        """Available CPU where it is sensed; memory never is."""
        unknown = np.full(self.workers, math.nan)
        return (unknown if self.cpu is None else self._in(self.cpu[self._row(iteration)])), unknown


def wandering(iterations: int, spread: npt.ArrayLike, correlation: npt.ArrayLike, *, seed: int) -> FloatArray:
    r"""Availabilities that wander about 1: ``a = exp(u)``, ``u_k = r u_{k-1} + sqrt(1 - r^2) s z_k``.

    Args:
        iterations: K.
        spread: s >= 0, the standard deviation of the logarithm, shape ``(W,)``.
        correlation: iterations after which u's correlation is 1/e, > 0; ``r = exp(-1 / correlation)``, shape ``(W,)``.
        seed: of the randomness.

    Returns:
        Shape ``(K, W)``.

    Example:
        >>> bool(abs(np.log(wandering(20_000, [0.3], [5.0], seed=1)).std() - 0.3) < 0.02)
        True
    """
    s, tau = np.broadcast_arrays(np.asarray(spread, dtype=np.float64), np.asarray(correlation, dtype=np.float64))
    if not ((s >= 0) & np.isfinite(s) & (tau > 0)).all():
        raise ConfigurationError(f"spread {s} must be 0 or more, correlation {tau} positive")
    r = np.exp(-1.0 / tau)
    rng, u = np.random.default_rng(seed), np.empty((iterations, s.size))
    level = s * rng.standard_normal(s.size)
    for k in range(iterations):
        u[k] = level
        level = r * level + np.sqrt(1 - r**2) * s * rng.standard_normal(s.size)
    return np.asarray(np.exp(u, out=u))
