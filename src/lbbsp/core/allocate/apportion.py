"""Apportionment: integers with an exact sum, as near as can be to given real quotas, within bounds."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from lbbsp.core.types import Bounds, FloatArray, IntArray
from lbbsp.errors import ConfigurationError

__all__ = ["apportion", "bounded_quotas"]


_LEAST_WEIGHT = 1e-250
"""Least weight, of a greatest of 1: below one sample in any batch, and large enough for bounds divided by it."""


def bounded_quotas(weights: FloatArray, total: float, lo: FloatArray, hi: FloatArray) -> FloatArray:
    """Real quotas ``q_i = clip(r w_i, lo_i, hi_i)`` with the one scale r for which they sum to ``total``.

    The sum does not decrease in r and is linear between the corners ``lo_i / w_i`` and ``hi_i / w_i``.  Binary
    search over the sorted corners finds the two that r lies between, which tells whom the bounds hold; the others
    share the rest: O(W log W).  Running sums over the corners would be fewer operations, but weights that differ
    by many orders of magnitude cancel in them.

    Args:
        weights: positive and finite, shape ``(W,)``.
        total: the sum to reach, ``sum(lo) <= total <= sum(hi)``.
        lo: least quotas.
        hi: greatest quotas.
    """
    quotas: FloatArray = weights * (total / math.fsum(weights))
    if bool(((quotas >= lo) & (quotas <= hi)).all()):
        return quotas
    leave_lo, reach_hi = lo / weights, hi / weights
    corners = np.sort(np.concatenate([leave_lo, reach_hi]))
    left, right = 0, corners.size - 1
    while right - left > 1:
        middle = (left + right) // 2
        # cumsum adds one by one, in the same order on every host, as sum() does not.
        if np.clip(weights * corners[middle], lo, hi).cumsum()[-1] <= total:
            left = middle
        else:
            right = middle
    free = (leave_lo <= corners[left]) & (reach_hi >= corners[right])
    quotas = np.where(reach_hi <= corners[left], hi, lo)
    if free.any():
        scale = (total - math.fsum(quotas[~free])) / math.fsum(weights[free])
        quotas[free] = np.clip(weights[free] * scale, lo[free], hi[free])
    return quotas


def apportion(weights: npt.ArrayLike, total: int, bounds: Bounds) -> IntArray:
    """Sizes proportional to ``weights``, in whole granules within the bounds, that sum to ``total``.

    Largest remainder (Hamilton): each worker gets the floor of its quota, the granules left over go to the
    largest fractional parts, ties to the lower rank.  No size is a granule or more away from its quota
    unless a bound that is no multiple of the granularity makes it so.

    Args:
        weights: positive and finite, shape ``(W,)``; only their ratios matter.
        total: samples to hand out.
        bounds: per-worker bounds and granularity.

    Returns:
        x, shape ``(W,)``, with ``sum(x) == total``.

    Raises:
        InfeasibleBoundsError: no allocation exists (names the numbers).
        ConfigurationError: a weight is not positive and finite.

    Example:
        >>> apportion([0.8, 0.5, 0.3, 0.2], 64, Bounds.default(4, 64)).tolist()
        [28, 18, 11, 7]
    """
    lo, hi, units = bounds.in_units(total)
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != lo.shape or not bool((np.isfinite(w) & (w > 0)).all()):
        raise ConfigurationError(
            f"weights {np.array2string(w, threshold=8)}: expected {bounds.workers} positive finite numbers"
        )
    w = np.maximum(w / w.max(), _LEAST_WEIGHT)
    quotas = bounded_quotas(w, float(units), lo.astype(np.float64), hi.astype(np.float64))
    x = np.clip(np.floor(quotas).astype(np.int64), lo, hi)
    left = units - int(x.sum())
    while left:  # once, but for quotas that rounding put a unit off or that bounds close
        step = 1 if left > 0 else -1
        room = (x < hi) if left > 0 else (x > lo)
        need = np.where(room, step * (quotas - x), -np.inf)
        chosen = np.argsort(-need, kind="stable")[: min(abs(left), int(room.sum()))]
        x[chosen] += step
        left = units - int(x.sum())
    return x * bounds.granularity
