"""The batch sizes that a rank can take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.core.types import Bounds
from lbbsp.errors import ConfigurationError

__all__ = ["Limits", "own_bounds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The batch sizes that this rank can take, in samples; ranks may differ in all but the granularity.

    Args:
        min_size: least; 0 lets the rank be idle, which then runs one sample with weight 0.
        max_size: most, for example what its memory holds; None for no limit.
        granularity: every size is a multiple of it; the global batch must be one too.
    """

    min_size: int = 1
    max_size: int | None = None
    granularity: int = 1


def own_bounds(limits: Limits, x: int) -> tuple[int, int]:
    """This rank's (lo, hi), checked as far as one rank can."""
    lo = limits.min_size
    hi = x if limits.max_size is None else min(limits.max_size, x)
    if limits.granularity > 1 and lo:
        lo = max(lo, limits.granularity)
    if limits.max_size is not None and limits.max_size < limits.min_size:
        raise ConfigurationError(f"limits: max_size={limits.max_size} < min_size={limits.min_size}")
    Bounds(np.array([min(lo, hi)]), np.array([hi]), limits.granularity)
    return min(lo, hi), hi
