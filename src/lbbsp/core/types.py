"""The values that pass between the parts: bounds, reports, allocations.

Everything that concerns all workers is held as one array of shape ``(W,)``, so that ten thousand
workers cost a few vector operations and not ten thousand objects.  Arrays are made read-only.
"""

from __future__ import annotations

import enum
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lbbsp.core.arrays import FloatArray, IntArray, frozen
from lbbsp.core.bounds import Bounds
from lbbsp.errors import ConfigurationError

__all__ = ["Allocation", "Bounds", "FloatArray", "Forecast", "IntArray", "Reason", "Report", "Reports"]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a predictor expects: mean speed and its spread, in samples/s, each of shape ``(W,)``.

    ``mean`` is NaN for a worker of which nothing is known; ``spread`` is the standard deviation of the
    forecast's error (0 where it is not known).
    """

    mean: FloatArray
    spread: FloatArray


@dataclass(frozen=True, slots=True)
class Report:
    """What worker i sends at the end of its backward pass of iteration k.

    Args:
        iteration: k, the iteration that the worker is in.
        size: samples that were processed in the measured time.
        compute_s: t_i, local compute seconds; NaN where it was not measured.
        speed: forecast of the mean speed at the iteration being decided (samples/s), NaN if unknown.
        spread: standard deviation of that forecast (samples/s).
        cpu: c_i, available CPU (fraction), NaN if not measured.
        memory: m_i, available memory (fraction), NaN if not measured.
        checksum: of the last allocation that the worker holds.
        cost_s: what reporting and deciding lately cost this worker, seconds a report; NaN if unknown.
        cap: the most samples that are known to fit its memory, infinite if unknown.
    """

    iteration: int
    size: int
    compute_s: float
    speed: float
    spread: float
    cpu: float
    memory: float
    checksum: int
    cost_s: float = math.nan
    cap: float = math.inf

    WIDTH = 10

    def to_row(self) -> tuple[float, ...]:
        """The report as ``WIDTH`` float64 numbers, in the order of its fields (all exact: < 2**53)."""
        return (
            float(self.iteration),
            float(self.size),
            self.compute_s,
            self.speed,
            self.spread,
            self.cpu,
            self.memory,
            float(self.checksum),
            self.cost_s,
            self.cap,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """The reports of all workers for one iteration, a column an attribute, each of shape ``(W,)``.

    ``cap`` is None where no worker has one, else NaN or infinite for those that have none.
    """

    iteration: IntArray
    size: IntArray
    compute_s: FloatArray
    speed: FloatArray
    spread: FloatArray
    cpu: FloatArray
    memory: FloatArray
    checksum: IntArray
    cost_s: FloatArray
    cap: FloatArray | None = None

    @classmethod
    def from_rows(cls, rows: npt.ArrayLike) -> Reports:
        """Build from a ``(W, Report.WIDTH)`` float64 matrix, row i being worker i's ``Report.to_row``."""
        matrix = np.asarray(rows, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != Report.WIDTH:
            raise ConfigurationError(f"reports of shape {matrix.shape}: expected (W, {Report.WIDTH})")
        iteration, size, compute_s, speed, spread, cpu, memory, checksum, cost_s, cap = np.array(matrix.T, order="C")
        return cls(
            iteration.astype(np.int64),
            size.astype(np.int64),
            compute_s,
            speed,
            spread,
            cpu,
            memory,
            checksum.astype(np.int64),
            cost_s,
            cap if np.fmin.reduce(cap) < np.inf else None,
        )

    @classmethod
    def of(cls, reports: Iterable[Report]) -> Reports:
        """Build from the single reports of workers 0..W-1."""
        return cls.from_rows([r.to_row() for r in reports])

    @property
    def workers(self) -> int:
        """W, the number of workers."""
        return int(self.size.size)

    def usable(self, least_s: float, most_s: float) -> bool:
        """Whether all compute times lie within ``[least_s, most_s]`` and all speeds are finite and positive."""
        t, v = self.compute_s, self.speed
        good = (t >= least_s) & (t <= most_s) & (v > 0) & (v < np.inf)
        return int(np.count_nonzero(good)) == v.size


class Reason(enum.StrEnum):
    """Why an allocation is as it is; every decision carries one (I7)."""

    INITIAL = "initial"
    WARM_UP = "warm_up"
    MOVED = "moved"
    WITHIN_DEAD_BAND = "within_dead_band"
    UNCHANGED = "unchanged"
    FALLBACK = "fallback"
    OBSERVING = "observing"
    RESUMED = "resumed"
    CAPPED = "capped"


@dataclass(frozen=True, eq=False)
class Allocation:
    """x^k: how many samples each worker processes in iteration ``iteration`` and why.

    Args:
        iteration: k, the first iteration that it holds for.
        sizes: x_i, shape ``(W,)``, samples.
        reason: why it is as it is.
        detail: one sentence with the numbers behind the reason.
    """

    iteration: int
    sizes: IntArray
    reason: Reason
    detail: str = ""
    checksum: int = field(init=False)
    """A CRC-32 of the iteration and the sizes; equal on all ranks or the run is broken (I5)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", frozen(self.sizes, np.int64))
        object.__setattr__(self, "checksum", _checksum(self.iteration, self.sizes))


def _checksum(iteration: int, sizes: IntArray) -> int:
    """CRC-32 of ``iteration`` and ``sizes`` as little-endian int64."""
    seed = zlib.crc32(int(iteration).to_bytes(8, "little", signed=True))
    return zlib.crc32(np.asarray(sizes, dtype="<i8").tobytes(), seed)
