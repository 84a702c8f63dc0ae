"""What every reader gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lbbsp.core.arrays import FloatArray
from lbbsp.errors import ConfigurationError

__all__ = ["LEAST_AVAILABLE", "Trace", "available"]

LEAST_AVAILABLE = 0.05
"""The least share of a machine that a worker is taken to have."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """Speeds of W workers over K iterations, with what was sensed before each.

    Args:
        name: of the trace, for tables.
        speeds: v_i^k, samples/s (or relative, where the source is), shape ``(K, W)``.
        cpu: available CPU, fractions, shape ``(K, W)``; NaN where unknown.
        memory: available memory, fractions, shape ``(K, W)``; NaN where unknown.
        measured: whether speeds were timed; False where they are computed from the CPU's load, so that ``cpu``
            can tell nothing that the speed does not.

    Raises:
        ConfigurationError: fewer than 2 iterations, no worker, differing shapes, or a speed that is not positive.
    """

    name: str
    speeds: FloatArray
    cpu: FloatArray
    memory: FloatArray
    measured: bool

    def __post_init__(self) -> None:
        v = self.speeds
        if v.ndim != 2 or v.shape[0] < 2 or v.shape[1] < 1:
            raise ConfigurationError(
                f"{self.name}: holds {v.shape[0]} iteration(s); a trace needs 2 or more of 1 or more workers"
            )
        if not (self.cpu.shape == self.memory.shape == v.shape):
            raise ConfigurationError(f"{self.name}: speeds, cpu and memory differ in shape; give each as (K, W)")
        if not (np.isfinite(v) & (v > 0)).all():
            raise ConfigurationError(f"{self.name}: a speed is not positive and finite; leave such rows out")

    @property
    def iterations(self) -> int:
        """K."""
        return int(self.speeds.shape[0])

    @property
    def workers(self) -> int:
        """W."""
        return int(self.speeds.shape[1])


def available(percent_busy: FloatArray, path: Path) -> FloatArray:
    """The share of a machine that is free, at least `LEAST_AVAILABLE`, from its load in percent.

    Raises:
        ConfigurationError: a load lies outside 0 to 100 %.
    """
    bad = np.flatnonzero(~((percent_busy >= 0) & (percent_busy <= 100)))
    if bad.size:
        value = float(percent_busy.ravel()[bad[0]])
        what = "not a number" if math.isnan(value) else f"{value:g} %"
        raise ConfigurationError(f"{path}: a load is {what}; give percent between 0 and 100, or leave the row out")
    return np.asarray(np.maximum(LEAST_AVAILABLE, 1.0 - percent_busy / 100.0))
