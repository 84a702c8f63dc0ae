"""Synchronous runs with sizes that are known without an engine."""

from __future__ import annotations

import numpy as np

from lbbsp.core.types import FloatArray, IntArray
from lbbsp.sim.bsp import Truth

__all__ = ["times_of"]


def times_of(truth: Truth, sizes: IntArray, iterations: int) -> FloatArray:
    """True compute seconds with ``sizes`` of shape ``(W,)`` or ``(K, W)``; shape ``(K, W)``."""
    times = np.empty((iterations, truth.workers))
    for k in range(iterations):
        times[k] = truth.times_s(k, sizes if sizes.ndim == 1 else sizes[k])
    return times
