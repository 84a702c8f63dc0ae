"""Proportional sizing: the paper's rule for CPU clusters."""

from __future__ import annotations

import numpy.typing as npt

from lbbsp.core.allocate.apportion import apportion
from lbbsp.core.types import Bounds, IntArray

__all__ = ["proportional"]


def proportional(speeds: npt.ArrayLike, total: int, bounds: Bounds) -> IntArray:
    """``x_i = X v_i / sum_j v_j``, apportioned to integers that keep the sum.

    On CPU clusters time is linear in the batch, so equal times need batches proportional to speeds.  Within
    bounds the share of a worker that hits one goes to the others in proportion.  Rounding is by largest
    remainder; `minmax` rounds for the least slowest time instead and is never worse in that respect.

    Args:
        speeds: v_i in samples/s, positive and finite, shape ``(W,)``.
        total: X, samples.
        bounds: per-worker bounds and granularity.

    Raises:
        InfeasibleBoundsError: no allocation exists.
        ConfigurationError: a speed is not positive and finite.

    Source: Chen et al., SoCC 2020, section 3.3 (CPU clusters).

    Example:
        >>> proportional([3.0, 1.0], 8, Bounds.default(2, 8)).tolist()
        [6, 2]
    """
    return apportion(speeds, total, bounds)
