"""The batch sizes that a rank can take."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lbbsp.core.types import Bounds
from lbbsp.errors import ConfigurationError
from lbbsp.integrations.torch.memory import Memory

__all__ = ["Limits", "own_bounds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The batch sizes that this rank can take, in samples; ranks may differ in all but the granularity.

    Args:
        min_size: least; 0 lets the rank be idle, which then runs one sample with weight 0.  None for 1, or 2 where
            the model has BatchNorm, which cannot be trained on a single sample.
        max_size: most, for example what its memory holds; None for no limit.
        granularity: every size is a multiple of it; the global batch must be one too.
        memory: how the batch is kept within this rank's memory.
    """

    min_size: int | None = None
    max_size: int | None = None
    granularity: int = 1
    memory: Memory = field(default_factory=Memory)


def own_bounds(limits: Limits, x: int, cap: int | None, *, least: int) -> tuple[int, int]:
    """This rank's (lo, hi) under ``cap``, its limit or a lower one kept; checked as far as one rank can.

    ``least`` is for a ``min_size`` of None.
    """
    lo = least if limits.min_size is None else limits.min_size
    hi = x if cap is None else min(cap, x)
    if limits.granularity > 1 and lo:
        lo = max(lo, limits.granularity)
    if limits.max_size is not None and limits.max_size < lo:
        raise ConfigurationError(f"limits: max_size={limits.max_size} < min_size={lo}")
    Bounds(np.array([min(lo, hi)]), np.array([hi]), limits.granularity)
    return min(lo, hi), hi
