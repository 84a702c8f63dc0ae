"""The sizes that workers can take: bounds and granularity, in samples and in granules."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lbbsp.core.arrays import IntArray, frozen
from lbbsp.errors import ConfigurationError, InfeasibleBoundsError

__all__ = ["MOST_SAMPLES", "Bounds"]

MOST_SAMPLES = 2**50
"""No global batch may be larger: below it float64 holds every size exactly, and sums of sizes fit int64."""


@dataclass(frozen=True, slots=True)
class _Units:
    """Bounds in granules, with what is asked of them at every decision.

    ``least`` and ``most`` are the sums of the bounds (samples), ``crossed`` a worker whose bounds hold no multiple
    of the granularity, ``limit`` the largest global batch for so many workers, ``cap`` the upper bounds within it
    (samples).
    """

    lo: IntArray
    hi: IntArray
    cap: IntArray
    least: int
    most: int
    crossed: int | None
    limit: int

    @classmethod
    def of(cls, lo: IntArray, hi: IntArray, g: int) -> _Units:
        """Round ``lo`` up and ``hi`` down to multiples of ``g``."""
        low, high = lo // g + (lo % g > 0), hi // g
        limit = min(MOST_SAMPLES, 2**62 // lo.size)
        crossed = np.flatnonzero(low > high)
        return cls(
            # No feasible size exceeds the limit; bounds that mean "any number" must not overflow sums.
            lo=frozen(np.minimum(low, limit), np.int64),
            hi=frozen(np.minimum(high, limit), np.int64),
            cap=frozen(np.minimum(hi, limit), np.int64),
            least=sum(low.tolist()) * g,
            most=sum(high.tolist()) * g,
            crossed=int(crossed[0]) if crossed.size else None,
            limit=limit,
        )


@dataclass(frozen=True, eq=False)
class Bounds:
    """The sizes that the workers can take: ``lo_i <= x_i <= hi_i``, ``x_i`` a multiple of ``granularity``.

    Args:
        lo: least samples for each worker, shape ``(W,)``; 0 lets a worker be idle.
        hi: most samples for each worker, shape ``(W,)``.
        granularity: g; every size is a multiple of it (samples).

    Raises:
        ConfigurationError: a bound is negative or no whole number, ``lo > hi``, shapes differ, or
            ``granularity`` is no whole number or ``< 1``.
    """

    lo: IntArray
    hi: IntArray
    granularity: int = 1
    _units: _Units = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lo", _whole(self.lo, "lo"))
        object.__setattr__(self, "hi", _whole(self.hi, "hi"))
        if self.lo.ndim != 1 or self.lo.shape != self.hi.shape or self.lo.size == 0:
            raise ConfigurationError(
                f"bounds: lo has shape {self.lo.shape} and hi {self.hi.shape}; "
                "give both one entry a worker, for one worker at least"
            )
        if not isinstance(self.granularity, int | np.integer) or self.granularity < 1:
            raise ConfigurationError(f"granularity={self.granularity}: must be a whole number of samples, 1 or more")
        for worker in np.flatnonzero((self.lo < 0) | (self.lo > self.hi))[:1]:
            raise ConfigurationError(
                f"bounds of worker {worker}: lo={self.lo[worker]}, hi={self.hi[worker]}; they must hold 0 <= lo <= hi"
            )
        object.__setattr__(self, "_units", _Units.of(self.lo, self.hi, self.granularity))

    @classmethod
    def default(cls, workers: int, global_batch_size: int, *, granularity: int = 1) -> Bounds:
        """Bounds of at least one granule and at most the whole batch for each of ``workers``."""
        if workers < 1:
            raise ConfigurationError(f"workers={workers}: must be 1 or more")
        return cls(
            np.full(workers, min(granularity, global_batch_size)),
            np.full(workers, global_batch_size),
            granularity,
        )

    @property
    def workers(self) -> int:
        """W, the number of workers."""
        return int(self.lo.size)

    def in_units(self, total: int) -> tuple[IntArray, IntArray, int]:
        """``(lo, hi, total)`` counted in granules, after checking that some allocation exists (I1).

        Raises:
            InfeasibleBoundsError: ``total`` is no multiple of the granularity, or the sums of the bounds
                do not enclose it; the message names the numbers.
            ConfigurationError: ``total`` is larger than any batch can be.
        """
        g, units = self.granularity, self._units
        if total % g:
            below = total - total % g
            raise InfeasibleBoundsError(
                f"global batch {total} is not divisible by the granularity {g}; "
                f"take {below or g} or {below + g}, or another granularity"
            )
        if units.crossed is not None:
            worker = units.crossed
            raise InfeasibleBoundsError(
                f"worker {worker}: no multiple of granularity {g} lies within "
                f"[{self.lo[worker]}, {self.hi[worker]}]; widen its bounds"
            )
        if total < units.least:
            raise InfeasibleBoundsError(
                f"global batch {total} < {units.least}, the sum of the lower bounds of {self.workers} workers "
                f"(in multiples of {g}); take a global batch of {units.least} or more, or lower the bounds "
                "(0 lets workers be idle)"
            )
        if total > units.most:
            raise InfeasibleBoundsError(
                f"global batch {total} > {units.most}, the sum of the upper bounds of {self.workers} workers "
                f"(in multiples of {g}); take a global batch of {units.most} or less, or raise the bounds"
            )
        if total > units.limit:
            raise ConfigurationError(f"global batch {total}: {self.workers} workers can share {units.limit} at most")
        return units.lo, units.hi, total // g

    def admit(self, sizes: npt.ArrayLike, total: int) -> bool:
        """Whether ``sizes`` (integers, samples, shape ``(W,)``) sum to ``total`` and keep these bounds."""
        x = np.asarray(sizes)
        if x.shape != self.lo.shape or x.dtype.kind not in "iu" or int(np.add.reduce(x)) != total:
            return False
        within = (x >= self.lo) & (x <= self._units.cap)  # within the cap the sum above has not overflowed
        if self.granularity > 1:
            within &= x % self.granularity == 0
        return bool(np.count_nonzero(within) == x.size)


def _whole(values: npt.ArrayLike, name: str) -> IntArray:
    """``values`` as a read-only int64 array; an error where that would change one of them."""
    given = np.asarray(values)
    if given.dtype.kind not in "iu" and given.size:
        fine = given.dtype.kind == "f" and bool(((given == np.floor(given)) & (np.abs(given) < 2.0**63)).all())
        if not fine:
            raise ConfigurationError(
                f"bounds: {name}={np.array2string(given, threshold=8)} must be whole numbers of samples; "
                "for no upper bound give the global batch size"
            )
    return frozen(given, np.int64)
