"""A simulated cluster of profiled devices: noise, drift, co-location and step changes on measured curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lbbsp.core.arrays import FloatArray, IntArray
from lbbsp.core.time_models import TableTimes, TimeModels
from lbbsp.core.types import Bounds
from lbbsp.errors import ConfigurationError
from lbbsp.sim.profiles.profile import Profile
from lbbsp.sim.truth import ScaledTimes

__all__ = ["ProfileTruth"]


@dataclass(frozen=True, eq=False)
class ProfileTruth:
    """Workers with measured profiles: ``t_i^k = f_i^k T_i(x) exp(noise z - noise^2 / 2)``, z standard normal.

    Args:
        profiles: one a worker.
        noise: relative standard deviation, independent between workers and iterations.
        factors: f_i^k, shape ``(K, W)``: drift, co-located jobs, step changes; 1 without.  After K iterations the
            last row holds.
        seed: of the noise; the same seed and iteration give the same noise whatever the sizes.

    Raises:
        ConfigurationError: no profile is given, the noise is negative, or ``factors`` has another shape or an
            entry that is not positive.
    """

    profiles: Sequence[Profile]
    noise: float = 0.0
    factors: npt.ArrayLike | None = None
    seed: int = 0
    _models: TableTimes = field(init=False, repr=False)
    _factors: FloatArray = field(init=False, repr=False)
    _scaled: list[ScaledTimes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.profiles:
            raise ConfigurationError("a cluster of 0 profiles: give one for each worker")
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise ConfigurationError(f"noise={self.noise}: must be 0 or more, relative")
        factors = np.ones((1, self.workers)) if self.factors is None else np.asarray(self.factors, dtype=np.float64)
        fits = factors.ndim == 2 and factors.shape[0] >= 1 and factors.shape[1] == self.workers
        if not fits or not bool((np.isfinite(factors) & (factors > 0)).all()):
            raise ConfigurationError(
                f"factors of shape {factors.shape}: give (K, {self.workers}) positive numbers, K >= 1"
            )
        grid = np.arange(max(p.most for p in self.profiles) + 1)
        # The oracle needs non-decreasing times: a dip is filled, so a run may beat it there by the dip.
        object.__setattr__(self, "_models", TableTimes([p.time_s(grid) for p in self.profiles]))
        object.__setattr__(self, "_factors", factors)
        scaled: list[ScaledTimes] = []  # one object as long as nothing changes, so that it is solved once
        for k, row in enumerate(factors):
            same = k > 0 and bool((row == factors[k - 1]).all())
            scaled.append(scaled[-1] if same else ScaledTimes(self._models, row))
        object.__setattr__(self, "_scaled", scaled)

    @property
    def workers(self) -> int:
        """W."""
        return len(self.profiles)

    def bounds(self, *, granularity: int = 1) -> Bounds:
        """At least one granule and at most the largest measured size for each worker."""
        return Bounds(np.full(self.workers, granularity), np.array([p.most for p in self.profiles]), granularity)

    def _factor(self, iteration: int) -> FloatArray:
        return np.asarray(self._factors[min(iteration, len(self._factors) - 1)])

    def quiet_times_s(self, iteration: int, sizes: IntArray) -> FloatArray:
        """The times without noise, seconds."""
        once = np.array([float(p.time_s(x)) for p, x in zip(self.profiles, sizes, strict=True)])
        return np.asarray(self._factor(iteration) * once)

    def times_s(self, iteration: int, sizes: IntArray) -> FloatArray:
        """The times with noise, seconds."""
        quiet = self.quiet_times_s(iteration, sizes)
        if self.noise == 0:
            return quiet
        z = np.random.default_rng([self.seed, iteration]).standard_normal(self.workers)
        return np.asarray(quiet * np.exp(self.noise * z - self.noise**2 / 2))

    def models(self, iteration: int) -> TimeModels:
        """The profiles of that iteration, made non-decreasing; the same object while the factors stay."""
        return self._scaled[min(iteration, len(self._scaled) - 1)]
