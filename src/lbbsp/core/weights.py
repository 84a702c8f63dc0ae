"""Gradient weights: what makes unequal batches give BSP's update exactly (I4).

The gradient over the global batch is ``g = sum_i (x_i / X) g_i``, where ``g_i`` is the mean over worker i's
own batch.  A framework that *averages* the workers' gradients computes ``(1/W) sum_i w_i g_i``, so its
local weight is ``w_i = W x_i / X``.

Source: Chen et al., SoCC 2020, section 3.2 (weighted gradient aggregation).
"""

from __future__ import annotations

__all__ = ["mean_weight", "share"]


def share(size: int, total: int) -> float:
    """``x_i / X``: the weight under a *sum* over workers.

    Example:
        >>> share(24, 48)
        0.5
    """
    return size / total


def mean_weight(size: int, total: int, workers: int) -> float:
    """``W x_i / X``: the weight under a *mean* over ``workers``; 1 for an equal split.

    Example:
        >>> mean_weight(16, 48, 3)
        1.0
    """
    return size * workers / total
