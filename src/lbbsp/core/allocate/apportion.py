"""Apportionment: integers with an exact sum, as near as can be to given real quotas, within bounds."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from lbbsp.core.types import Bounds, FloatArray, IntArray
from lbbsp.errors import ConfigurationError

__all__ = ["apportion", "bounded_quotas"]


def bounded_quotas(weights: FloatArray, total: float, lo: FloatArray, hi: FloatArray) -> FloatArray:
    """Real quotas ``q_i = clip(r w_i, lo_i, hi_i)`` with the one scale r for which they sum to ``total``.

    The sum is piecewise linear and non-decreasing in r with a corner at each ``lo_i / w_i`` and
    ``hi_i / w_i``; sorting the 2W corners finds the piece that holds ``total``: O(W log W).

    Args:
        weights: positive and finite, shape ``(W,)``.
        total: the sum to reach, ``sum(lo) <= total <= sum(hi)``.
        lo: least quotas.
        hi: greatest quotas.
    """
    quotas: FloatArray = weights * (total / math.fsum(weights))
    if bool(((quotas >= lo) & (quotas <= hi)).all()):
        return quotas
    corners = np.concatenate([lo / weights, hi / weights])
    order = np.argsort(corners, kind="stable")
    slopes = np.cumsum(np.concatenate([weights, -weights])[order])
    steps = np.diff(corners[order])
    sums = math.fsum(lo) + np.concatenate([[0.0], np.cumsum(slopes[:-1] * steps)])
    piece = max(0, min(int(np.searchsorted(sums, total, side="right")) - 1, sums.size - 2))
    slope = slopes[piece]
    start = corners[order][piece]
    scale = start + (total - sums[piece]) / slope if slope > 0 else start
    return np.asarray(np.clip(weights * scale, lo, hi))


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
    w = w / w.max()
    w = np.maximum(w, 1e-12)  # a ratio below one sample in any batch; keeps corners finite
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
