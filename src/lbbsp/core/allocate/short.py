"""Splitting a short iteration: the last of an epoch, when N is no multiple of X (I3)."""

from __future__ import annotations

import numpy as np

from lbbsp.core.allocate.apportion import apportion
from lbbsp.core.types import Bounds, IntArray

__all__ = ["short_split"]


def short_split(sizes: IntArray, total: int, bounds: Bounds) -> IntArray:
    """Split ``total`` samples, fewer than ``sum(sizes)``, in the ratio of ``sizes``.

    Upper bounds are kept, since no size exceeds that of the full iteration.  Lower bounds and the
    granularity cannot always be kept (one sample is left over for eight workers), so they give way: a
    worker left without a sample runs one with weight 0.  Where the lower bounds do fit, they are kept.

    Args:
        sizes: the full iteration's sizes, shape ``(W,)``.
        total: samples left, ``1 <= total <= sum(sizes)``.
        bounds: the full iteration's bounds.

    Example:
        >>> short_split(np.array([24, 8, 3]), 10, Bounds.default(3, 35)).tolist()
        [7, 2, 1]
    """
    if total == int(sizes.sum()):
        return sizes
    lo = np.minimum(bounds.lo, sizes)
    if int(lo.sum()) > total:
        lo = np.zeros_like(sizes)
    return apportion(np.maximum(sizes, 1e-9), total, Bounds(lo, sizes))
