"""The equal split: what plain data-parallel training does, and where balancing starts."""

from __future__ import annotations

import numpy as np

from lbbsp.core.allocate.apportion import apportion
from lbbsp.core.types import Bounds, IntArray

__all__ = ["equal_split"]


def equal_split(total: int, bounds: Bounds) -> IntArray:
    """Sizes that differ by one granule at most, as far as the bounds let them; the first ranks get more.

    Raises:
        InfeasibleBoundsError: no allocation exists.

    Example:
        >>> equal_split(10, Bounds.default(4, 10)).tolist()
        [3, 3, 2, 2]
    """
    return apportion(np.ones(bounds.workers), total, bounds)
