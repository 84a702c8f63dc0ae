"""The exact integer min-max solver: the least possible slowest time."""

from __future__ import annotations

import itertools
import math

import numpy as np

from lbbsp.core.time_models import TimeModels
from lbbsp.core.types import Bounds, FloatArray, IntArray

__all__ = ["minmax"]


def minmax(models: TimeModels, total: int, bounds: Bounds) -> IntArray:
    r"""Minimise ``max_i T_i(x_i)`` subject to ``sum_i x_i = X`` and the bounds, exactly, in integers.

    For a time limit tau let ``n_i(tau)`` be the largest size with ``T_i <= tau``.  ``sum_i n_i`` does not
    decrease in tau, so a bracket ``(tau_lo, tau_hi]`` around the least feasible limit is halved until it
    holds few granules; these are then handed out one by one in the order of the time that each would bring
    its worker to.  That order is the greedy one, which is optimal for separable min-max problems, and it
    minimises not just the largest time but the second largest too, and so on.  Ties go to the smaller
    size, then to the lower rank, so equal workers get equal sizes.

    Every step is exact integer arithmetic or a single IEEE operation in a fixed order: equal inputs give
    equal bits on every host (I5).

    Args:
        models: non-decreasing time models of the W workers.
        total: X, samples.
        bounds: per-worker bounds and granularity.

    Returns:
        x, shape ``(W,)``.  O(W log W) for the final order; a few evaluations of the models before it.

    Raises:
        InfeasibleBoundsError: no allocation exists.

    Source: greedy optimality, Ibaraki and Katoh, "Resource Allocation Problems", MIT Press 1988, chapter 5.

    Example:
        >>> from lbbsp.core.time_models import LinearTimes
        >>> minmax(LinearTimes([3.0, 1.0]), 8, Bounds.default(2, 8)).tolist()
        [6, 2]
    """
    lo, hi, units = bounds.in_units(total)
    scaled: TimeModels = models if bounds.granularity == 1 else _InUnits(models, bounds.granularity)
    x = _quick(scaled, units, lo, hi)
    if x is None:
        below, above = _bracket(scaled, units, lo, hi)
        x = _hand_out(scaled, units, below, above)
    return x if bounds.granularity == 1 else x * bounds.granularity


class _InUnits:
    """Time models over granules instead of samples."""

    def __init__(self, models: TimeModels, granularity: int) -> None:
        self._models, self._g = models, granularity

    def time_s(self, sizes: IntArray) -> FloatArray:
        return self._models.time_s(sizes * self._g)

    def time_of(self, workers: IntArray, sizes: IntArray) -> FloatArray:
        return self._models.time_of(workers, sizes * self._g)

    def largest_within(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        return self._models.largest_within(limit_s, lo * self._g, hi * self._g) // self._g

    def sizes_near(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        return self._models.sizes_near(limit_s, lo * self._g, hi * self._g) // self._g

    def limit_guess_s(self, total: int) -> tuple[float, float]:
        guess, slope = self._models.limit_guess_s(total * self._g)
        return guess, slope * self._g


def _quick(models: TimeModels, units: int, lo: IntArray, hi: IntArray) -> IntArray | None:
    """A few vector operations that mostly find the answer; None if they have not, or where there are ties.

    Sizes are the answer, and the only one, if every granule taken costs less than every one left.
    """
    guess, slope = models.limit_guess_s(units)
    if not math.isfinite(guess):
        return None
    # Rounding down loses W/2 granules, give or take 0.3 sqrt(W): aim so that a few are left to hand out.
    x = models.sizes_near(guess + slope * (lo.size / 2 - 0.6 * lo.size**0.5), lo, hi)
    left = units - int(np.add.reduce(x))
    if left < 0 or left > lo.size:
        return None
    after = x + 1
    if np.count_nonzero(after > hi):
        return None
    if left:
        cheapest = models.time_s(after).argpartition(left - 1)[:left]
        x[cheapest] += 1
        after[cheapest] += 1
    taken, next_one = np.maximum.reduce(models.time_s(x)), np.minimum.reduce(models.time_s(after))
    return x if taken < next_one else None


def _bracket(models: TimeModels, units: int, lo: IntArray, hi: IntArray) -> tuple[IntArray, IntArray]:
    """Sizes just below and at or above the least feasible limit, few granules apart where that can be.

    The result holds ``sum(below) <= units <= sum(above)``, and every granule between them costs no less than
    each granule in ``below`` (beyond the lower bounds) and no more than each one left out of ``above``.
    """
    few = 2 * lo.size + 16
    below, n_lo, tau_lo = lo, int(np.add.reduce(lo)), -np.inf
    above, n_hi, tau_hi = hi, int(np.add.reduce(hi)), np.inf
    guess, slope = models.limit_guess_s(units)
    # The model's guess first, on either side: rounding down loses W/2 granules there, give or take sqrt(W).
    give_or_take = lo.size**0.5 + 1.0
    around = (lo.size / 2 - give_or_take, lo.size / 2 + give_or_take)
    probes = [guess + slope * granules for granules in around] if math.isfinite(guess) else []
    for attempt in itertools.count():
        if n_hi - n_lo <= few or n_lo == units:
            return below, above
        if probes:
            tau = probes.pop()
        elif tau_lo == -np.inf or tau_hi == np.inf:
            # Where nothing beyond lo fits yet, and where everything does.
            tau_lo = max(tau_lo, float(np.nextafter(models.time_s(lo).min(), -np.inf)))
            tau_hi = min(tau_hi, float(models.time_s(np.minimum(hi, lo + (units - int(lo.sum())))).max()))
            continue
        elif attempt % 3 < 2:  # two guesses in three by false position, the third halves
            tau = tau_lo + (tau_hi - tau_lo) * ((units - n_lo) / (n_hi - n_lo))
        else:
            tau = tau_lo + (tau_hi - tau_lo) / 2
        if not tau_lo < tau < tau_hi:
            tau = float(np.nextafter(tau_lo, tau_hi))
            if tau >= tau_hi:
                return below, above  # adjacent floats: all that lies between is tied at tau_hi
        x = models.largest_within(tau, lo, hi)
        n = int(np.add.reduce(x))
        if n > units:
            above, n_hi, tau_hi = x, n, tau
        else:
            below, n_lo, tau_lo = x, n, tau
    raise AssertionError("unreachable")


def _hand_out(models: TimeModels, units: int, below: IntArray, above: IntArray) -> IntArray:
    """Give ``units - sum(below)`` granules to the cheapest next steps between ``below`` and ``above``."""
    left = units - int(np.add.reduce(below))
    if left == 0:
        return below
    gaps = above - below
    many = int(np.add.reduce(gaps))
    if many > 2 * below.size + 16:
        return _level(units, below, above)
    workers = np.repeat(np.arange(below.size), gaps)
    sizes = np.arange(1, many + 1) + (below - gaps.cumsum() + gaps)[workers]
    order = np.lexsort((workers, sizes, models.time_of(workers, sizes)))
    handed = np.bincount(workers[order[:left]], minlength=below.size)
    return np.asarray(below + handed, dtype=np.int64)


def _level(units: int, below: IntArray, above: IntArray) -> IntArray:
    """All granules between are tied in time: fill the smallest sizes first, up to a common level."""
    low, high = int(below.min()), int(above.max())
    while high - low > 1:
        middle = (low + high) // 2
        if int(np.clip(middle, below, above).sum()) > units:
            high = middle
        else:
            low = middle
    x: IntArray = np.clip(low, below, above)
    x[np.flatnonzero((x < above) & (x == low))[: units - int(x.sum())]] += 1
    return x
