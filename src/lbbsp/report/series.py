"""A recorded run as matrices, a row an iteration and a column a worker."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lbbsp.errors import ConfigurationError, TelemetryError
from lbbsp.telemetry import DecisionRecord, EventRecord, Run

__all__ = ["FloatArray", "IntArray", "Series", "series_of"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Series:
    """K iterations of W workers; NaN stands where a rank is missing or did not measure.

    Args:
        iterations: k, ascending, shape ``(K,)``.
        totals: samples over all ranks, shape ``(K,)``.
        sizes: x_i^k, samples, shape ``(K, W)``.
        compute_s: t_i^k, local compute, seconds, shape ``(K, W)``.
        wait_s: waits for other ranks, seconds, shape ``(K, W)``.
        step_s: from boundary to boundary, seconds, shape ``(K, W)``.
        decisions: for these iterations (or later ones), in order; one an iteration.
        events: all that the run told of.
    """

    iterations: IntArray
    totals: IntArray
    sizes: FloatArray
    compute_s: FloatArray
    wait_s: FloatArray
    step_s: FloatArray
    decisions: tuple[DecisionRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()

    @property
    def workers(self) -> int:
        """W."""
        return int(self.sizes.shape[1])

    @property
    def speeds(self) -> FloatArray:
        """v_i^k = x_i^k / t_i^k, samples/s, shape ``(K, W)``; NaN for an idle worker: it is unknown."""
        known = (self.sizes > 0) & (self.compute_s > 0) & np.isfinite(self.compute_s)
        speeds = np.full(self.sizes.shape, np.nan)
        np.divide(self.sizes, self.compute_s, out=speeds, where=known)
        return speeds

    @property
    def complete(self) -> npt.NDArray[np.bool_]:
        """Whether the recorded sizes make up the global batch, so that no rank is missing; shape ``(K,)``."""
        return np.asarray(np.nansum(self.sizes, axis=1) == self.totals)

    @property
    def iteration_s(self) -> FloatArray:
        """The slowest rank's step, seconds, shape ``(K,)``; NaN if none measured it."""
        usable = np.where(np.isfinite(self.step_s) & (self.step_s > 0), self.step_s, -np.inf)
        slowest = usable.max(axis=1, initial=-np.inf)
        return np.where(slowest > 0, slowest, np.nan)

    @property
    def oracle_s(self) -> FloatArray:
        """The best possible time, ``X_k / sum_i v_i^k``, seconds, shape ``(K,)``.

        It is what a split that knew the speeds of the same iteration would have taken, without anything
        common to all splits.  NaN where a rank, or a working rank's time, is missing.
        """
        speeds = self.speeds
        known = self.complete & ~((self.sizes > 0) & np.isnan(speeds)).any(axis=1) & (self.totals > 0)
        seconds = np.full(self.totals.shape, np.nan)
        np.divide(self.totals, np.nansum(speeds, axis=1), out=seconds, where=known)
        return seconds

    def between(self, first: int, last: int) -> Series:
        """The iterations ``first <= k <= last``, with the decisions and events for them."""
        kept = (self.iterations >= first) & (self.iterations <= last)
        return replace(
            self,
            iterations=self.iterations[kept],
            totals=self.totals[kept],
            sizes=self.sizes[kept],
            compute_s=self.compute_s[kept],
            wait_s=self.wait_s[kept],
            step_s=self.step_s[kept],
            decisions=tuple(d for d in self.decisions if first <= d.iteration <= last),
            events=tuple(e for e in self.events if first <= e.iteration <= last),
        )


def series_of(run: Run, *, drop_first: int = 0) -> Series:
    """The series of a run, of whatever was recorded of it.

    Where a restart repeated an iteration, its later record counts.

    Args:
        run: as read by ``read_run``.
        drop_first: iterations to leave out at the beginning (warm-up), with the decisions for them.

    Raises:
        ConfigurationError: ``drop_first`` is negative.
        TelemetryError: a record's rank is not one of the run's.

    Example:
        >>> from lbbsp.telemetry import read_run  # doctest: +SKIP
        >>> series_of(read_run("runs/today")).sizes[-1]  # doctest: +SKIP
        array([228., 142.,  85.,  57.])
    """
    if drop_first < 0:
        raise ConfigurationError(f"drop_first={drop_first}: must be 0 or more iterations")
    records, workers = run.iterations, run.workers
    for record in records:
        if not 0 <= record.rank < workers:
            raise TelemetryError(
                f"iteration {record.iteration} has rank {record.rank}, but the run has {workers} workers; "
                "the record belongs to another run"
            )
    numbers = np.array([record.iteration for record in records], dtype=np.int64)
    ranks = np.array([record.rank for record in records], dtype=np.int64)
    iterations, rows = np.unique(numbers, return_inverse=True)

    def matrix(field: str) -> FloatArray:
        take = operator.attrgetter(field)
        filled = np.full((iterations.size, workers), np.nan)
        # None becomes NaN; where an entry comes twice, numpy keeps the last.
        filled[rows, ranks] = np.array([take(record) for record in records], dtype=np.float64)
        return filled

    totals = np.zeros(iterations.size, dtype=np.int64)
    totals[rows] = np.array([record.total for record in records], dtype=np.int64)
    newest = {decision.iteration: decision for decision in run.decisions}
    kept = iterations[drop_first:]
    first = kept[0] if kept.size else np.inf
    return Series(
        iterations=kept,
        totals=totals[drop_first:],
        sizes=matrix("size")[drop_first:],
        compute_s=matrix("compute_s")[drop_first:],
        wait_s=matrix("wait_s")[drop_first:],
        step_s=matrix("step_s")[drop_first:],
        decisions=tuple(newest[k] for k in sorted(newest) if k >= first or not drop_first),
        events=run.events,
    )
