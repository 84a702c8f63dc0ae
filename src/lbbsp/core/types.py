"""The values that pass between the parts: bounds, reports, allocations.

Everything that concerns all workers is held as one array of shape ``(W,)``, so that ten thousand
workers cost a few vector operations and not ten thousand objects.  Arrays are made read-only.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lbbsp.errors import ConfigurationError, InfeasibleBoundsError

__all__ = ["Allocation", "Bounds", "Forecast", "Reason", "Report", "Reports"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def _frozen(values: npt.ArrayLike, dtype: type) -> np.ndarray:
    array: np.ndarray = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class Bounds:
    """The sizes that the workers can take: ``lo_i <= x_i <= hi_i``, ``x_i`` a multiple of ``granularity``.

    Args:
        lo: least samples for each worker, shape ``(W,)``; 0 lets a worker be idle.
        hi: most samples for each worker, shape ``(W,)``.
        granularity: g; every size is a multiple of it (samples).

    Raises:
        ConfigurationError: a bound is negative, ``lo > hi``, shapes differ, or ``granularity < 1``.
    """

    lo: IntArray
    hi: IntArray
    granularity: int = 1
    _units: tuple[IntArray, IntArray, int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lo", _frozen(self.lo, np.int64))
        object.__setattr__(self, "hi", _frozen(self.hi, np.int64))
        if self.lo.ndim != 1 or self.lo.shape != self.hi.shape or self.lo.size == 0:
            raise ConfigurationError(
                f"bounds: lo has shape {self.lo.shape} and hi {self.hi.shape}; "
                "give both one entry a worker, for one worker at least"
            )
        if self.granularity < 1:
            raise ConfigurationError(f"granularity={self.granularity}: must be 1 or more samples")
        for worker in np.flatnonzero((self.lo < 0) | (self.lo > self.hi))[:1]:
            raise ConfigurationError(
                f"bounds of worker {worker}: lo={self.lo[worker]}, hi={self.hi[worker]}; they must hold 0 <= lo <= hi"
            )
        g = self.granularity
        lo, hi = _frozen(-(-self.lo // g), np.int64), _frozen(self.hi // g, np.int64)
        object.__setattr__(self, "_units", (lo, hi, int(lo.sum()) * g, int(hi.sum()) * g))

    @classmethod
    def default(cls, workers: int, global_batch_size: int, *, granularity: int = 1) -> Bounds:
        """Bounds of at least one granule and at most the whole batch for each of ``workers``."""
        if workers < 1:
            raise ConfigurationError(f"workers={workers}: must be 1 or more")
        return cls(
            np.full(workers, min(granularity, global_batch_size)),
            np.full(workers, global_batch_size),
            granularity,
        )

    @property
    def workers(self) -> int:
        """W, the number of workers."""
        return int(self.lo.size)

    def in_units(self, total: int) -> tuple[IntArray, IntArray, int]:
        """``(lo, hi, total)`` counted in granules, after checking that some allocation exists (I1).

        Raises:
            InfeasibleBoundsError: ``total`` is no multiple of the granularity, or the sums of the bounds
                do not enclose it; the message names the numbers.
        """
        g = self.granularity
        if total % g:
            below = total - total % g
            raise InfeasibleBoundsError(
                f"global batch {total} is not divisible by the granularity {g}; "
                f"take {below or g} or {below + g}, or another granularity"
            )
        lo, hi, least, most = self._units
        if g > 1 and bool((lo > hi).any()):
            worker = int(np.argmax(lo > hi))
            raise InfeasibleBoundsError(
                f"worker {worker}: no multiple of granularity {g} lies within "
                f"[{self.lo[worker]}, {self.hi[worker]}]; widen its bounds"
            )
        if total < least:
            raise InfeasibleBoundsError(
                f"global batch {total} < {least}, the sum of the lower bounds of {self.workers} workers "
                f"(in multiples of {g}); take a global batch of {least} or more, or lower the bounds "
                "(0 lets workers be idle)"
            )
        if total > most:
            raise InfeasibleBoundsError(
                f"global batch {total} > {most}, the sum of the upper bounds of {self.workers} workers "
                f"(in multiples of {g}); take a global batch of {most} or less, or raise the bounds"
            )
        return lo, hi, total // g

    def admit(self, sizes: npt.ArrayLike, total: int) -> bool:
        """Whether ``sizes`` (samples, shape ``(W,)``) sum to ``total`` and keep these bounds."""
        x = np.asarray(sizes)
        if x.shape != self.lo.shape or int(np.add.reduce(x)) != total:
            return False
        within = (x >= self.lo) & (x <= self.hi)
        if self.granularity > 1:
            within &= x % self.granularity == 0
        return bool(np.count_nonzero(within) == x.size)


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
    """

    iteration: int
    size: int
    compute_s: float
    speed: float
    spread: float
    cpu: float
    memory: float
    checksum: int

    WIDTH = 8

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
        )


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """The reports of all workers for one iteration, a column an attribute, each of shape ``(W,)``."""

    iteration: IntArray
    size: IntArray
    compute_s: FloatArray
    speed: FloatArray
    spread: FloatArray
    cpu: FloatArray
    memory: FloatArray
    checksum: IntArray

    @classmethod
    def from_rows(cls, rows: npt.ArrayLike) -> Reports:
        """Build from a ``(W, Report.WIDTH)`` float64 matrix, row i being worker i's ``Report.to_row``."""
        matrix = np.asarray(rows, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != Report.WIDTH:
            raise ConfigurationError(f"reports of shape {matrix.shape}: expected (W, {Report.WIDTH})")
        iteration, size, compute_s, speed, spread, cpu, memory, checksum = np.ascontiguousarray(matrix.T)
        return cls(
            iteration.astype(np.int64),
            size.astype(np.int64),
            compute_s,
            speed,
            spread,
            cpu,
            memory,
            checksum.astype(np.int64),
        )

    @classmethod
    def of(cls, reports: Iterable[Report]) -> Reports:
        """Build from the single reports of workers 0..W-1."""
        return cls.from_rows([r.to_row() for r in reports])

    @property
    def workers(self) -> int:
        """W, the number of workers."""
        return int(self.size.size)


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
        object.__setattr__(self, "sizes", _frozen(self.sizes, np.int64))
        object.__setattr__(self, "checksum", _checksum(self.iteration, self.sizes))


def _checksum(iteration: int, sizes: IntArray) -> int:
    """CRC-32 of ``iteration`` and ``sizes`` as little-endian int64."""
    seed = zlib.crc32(int(iteration).to_bytes(8, "little", signed=True))
    return zlib.crc32(np.asarray(sizes, dtype="<i8").tobytes(), seed)
