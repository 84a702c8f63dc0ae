"""Time models T_i(x): the seconds that worker i needs for x samples, non-decreasing in x.

A model holds all W workers and evaluates them at once.  The min-max solver needs just two things of it: the
time at given sizes, and the largest size that fits into a given time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lbbsp.core.types import FloatArray, IntArray
from lbbsp.errors import ConfigurationError

__all__ = ["AffineTimes", "LinearTimes", "TableTimes", "TimeModels", "largest_by_bisection"]


class TimeModels(Protocol):
    """Non-decreasing time models of W workers."""

    def time_s(self, sizes: IntArray) -> FloatArray:
        """T_i(x_i) in seconds; ``sizes`` has shape ``(W,)``."""
        ...

    def time_of(self, workers: IntArray, sizes: IntArray) -> FloatArray:
        """T_w(x) for each pair (w, x) of two arrays of one length."""
        ...

    def largest_within(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """The largest ``x_i`` in ``[lo_i, hi_i]`` with ``T_i(x_i) <= limit_s``; ``lo_i`` where none fits."""
        ...

    def sizes_near(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """About `largest_within`, within the bounds but not checked: the solver's quick look."""
        ...

    def limit_guess_s(self, total: int) -> tuple[float, float]:
        """A guess of the least limit at which ``total`` samples fit, and of its change a sample.

        Only the solver's speed depends on it, never its result; return ``(nan, nan)`` for no guess.
        """
        ...


_LEAST_DIVISOR = 1e-150


@dataclass(frozen=True, eq=False)
class AffineTimes:
    """``T_i(x) = max(flat_i, fixed_i + per_sample_i x)``: flat below a saturation size, linear above.

    Where ``T_i(x) = x / v_i``, as on the paper's CPU clusters, `LinearTimes` is cheaper.

    Args:
        flat_s: s_i, seconds below saturation, shape ``(W,)``.
        fixed_s: a_i, seconds.
        per_sample_s: b_i >= 0, seconds a sample.
    """

    flat_s: FloatArray
    fixed_s: FloatArray
    per_sample_s: FloatArray
    _divisor: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("flat_s", "fixed_s", "per_sample_s"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        low, high = self.per_sample_s.min(), (self.flat_s + self.fixed_s + self.per_sample_s).max()
        if not (low >= 0 and abs(high) < np.inf):  # also false where anything is NaN
            raise ConfigurationError(
                f"time model: all must be finite and per_sample_s >= 0, got flat_s={self.flat_s}, "
                f"fixed_s={self.fixed_s}, per_sample_s={self.per_sample_s}"
            )
        # A time that does not grow is searched as one that grows unmeasurably slowly.
        object.__setattr__(self, "_divisor", np.maximum(self.per_sample_s, _LEAST_DIVISOR))

    def time_s(self, sizes: IntArray) -> FloatArray:
        """T_i(x_i) in seconds."""
        return np.maximum(self.flat_s, self.fixed_s + self.per_sample_s * sizes)

    def time_of(self, workers: IntArray, sizes: IntArray) -> FloatArray:
        """T_w(x) for pairs."""
        return np.maximum(self.flat_s[workers], self.fixed_s[workers] + self.per_sample_s[workers] * sizes)

    def largest_within(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """Closed form; checked, and by bisection in the rare case that rounding put a size off."""
        return _checked(self, self.sizes_near(limit_s, lo, hi), limit_s, lo, hi)

    def sizes_near(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """The closed form."""
        room = np.minimum(np.maximum(limit_s - self.fixed_s, 0.0), 1e150)  # over the divisor it stays finite
        guess = np.minimum(room / self._divisor, hi)
        return np.maximum(np.where(self.flat_s > limit_s, lo, guess.astype(np.int64)), lo)

    def limit_guess_s(self, total: int) -> tuple[float, float]:
        """The limit at which unbounded, unrounded sizes would sum to ``total``, and its slope in s a sample."""
        rates = 1.0 / self._divisor
        slope = 1.0 / float(np.add.reduce(rates))
        return (total + float(self.fixed_s @ rates)) * slope, slope


class LinearTimes:
    """``T_i(x) = x / v_i``, the paper's model of CPU clusters.

    Args:
        speeds: v_i in samples/s, shape ``(W,)``.

    Raises:
        ConfigurationError: a speed is not finite and positive.
    """

    __slots__ = ("speeds",)

    def __init__(self, speeds: npt.ArrayLike) -> None:
        v = np.asarray(speeds, dtype=np.float64)
        if np.count_nonzero((v > 0) & (v < np.inf)) < v.size:
            raise ConfigurationError(f"speeds must be finite and positive, got {v}")
        # Beyond 1e100 either way products could overflow.
        self.speeds: FloatArray = np.minimum(np.maximum(v, 1e-100), 1e100)

    def time_s(self, sizes: IntArray) -> FloatArray:
        """T_i(x_i) in seconds."""
        return np.asarray(sizes / self.speeds)

    def time_of(self, workers: IntArray, sizes: IntArray) -> FloatArray:
        """T_w(x) for pairs."""
        return np.asarray(sizes / self.speeds[workers])

    def largest_within(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """Closed form; checked, and by bisection in the rare case that rounding put a size off."""
        return _checked(self, self.sizes_near(limit_s, lo, hi), limit_s, lo, hi)

    def sizes_near(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """The closed form."""
        within = np.minimum(self.speeds * max(0.0, min(limit_s, 1e150)), hi)
        return np.maximum(within.astype(np.int64), lo)

    def limit_guess_s(self, total: int) -> tuple[float, float]:
        """``X / sum(v)`` and ``1 / sum(v)``."""
        slope = 1.0 / float(np.add.reduce(self.speeds))
        return total * slope, slope


@dataclass(frozen=True, eq=False)
class TableTimes:
    """Times measured at every size: ``table[i][x]`` seconds for ``x = 0..``; made non-decreasing.

    A measured profile that dips (noise) is replaced by its running maximum, the least non-decreasing
    function above it.  Sizes beyond the table take its last value, so bound them.
    """

    table: Sequence[npt.ArrayLike]

    def __post_init__(self) -> None:
        rows = [np.maximum.accumulate(np.asarray(row, dtype=np.float64)) for row in self.table]
        if not rows or any(r.ndim != 1 or r.size == 0 or not np.isfinite(r).all() for r in rows):
            raise ConfigurationError("time table: give each worker a non-empty list of finite seconds")
        width = max(r.size for r in rows)
        object.__setattr__(self, "table", np.stack([np.concatenate([r, np.full(width - r.size, r[-1])]) for r in rows]))

    def time_s(self, sizes: IntArray) -> FloatArray:
        """T_i(x_i) in seconds."""
        return self.time_of(np.arange(len(self.table)), sizes)

    def time_of(self, workers: IntArray, sizes: IntArray) -> FloatArray:
        """T_w(x) for pairs."""
        table = np.asarray(self.table)
        return np.asarray(table[workers, np.minimum(sizes, table.shape[1] - 1)], dtype=np.float64)

    def largest_within(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """By bisection over sizes."""
        return largest_by_bisection(self, limit_s, lo, hi)

    def sizes_near(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """Exactly, by bisection."""
        return largest_by_bisection(self, limit_s, lo, hi)

    def limit_guess_s(self, total: int) -> tuple[float, float]:
        """No guess."""
        return math.nan, math.nan


def _checked(models: TimeModels, x: IntArray, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
    """``x`` where it is `largest_within`, which else is found by bisection."""
    fits = (models.time_s(x) <= limit_s) | (x == lo)
    full = (models.time_s(x + 1) > limit_s) | (x == hi)
    if np.count_nonzero(fits & full) == x.size:
        return x
    return largest_by_bisection(models, limit_s, lo, hi)


def largest_by_bisection(models: TimeModels, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
    """``largest_within`` for any non-decreasing models: O(log max(hi - lo)) evaluations of all workers."""
    low, high = lo.copy(), hi.copy()
    while bool((low < high).any()):
        middle = (low + high + 1) // 2
        fits = models.time_s(middle) <= limit_s
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return low
