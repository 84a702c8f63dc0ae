"""The demo's figures, from the records of its segments."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from lbbsp.integrations.torch.workload.job import Job, Outcome, folder_of
from lbbsp.report import Series, Summary, series_of, summarise
from lbbsp.telemetry import read_run

__all__ = ["ADAPTING", "Figures", "figures_of"]

ADAPTING = 5
"""Iterations at a segment's start that are not counted: warm-up, and the balanced run finding its sizes."""

_NEAR = 1.05  # within 5% of the steady iteration time


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured; medians over the segments of a kind, each after its first iterations.

    Args:
        plain: summaries of the plain segments.
        balanced: summaries of the balanced segments.
        plain_s: plain DDP's seconds an iteration.
        balanced_s: the balanced run's.
        reached_after: iterations until a balanced segment first was within 5% of its steady time.
        allocation: the last balanced segment's last sizes.
        loss_difference: largest absolute difference between a plain and a balanced loss curve.
        series: one plain and one balanced segment's series, for the picture.
        measured_shares: the CPU share that each worker really got.
    """

    plain: list[Summary]
    balanced: list[Summary]
    plain_s: float
    balanced_s: float
    reached_after: int
    allocation: list[int]
    loss_difference: float
    series: tuple[Series, Series]
    measured_shares: list[float]

    @property
    def speedup(self) -> float:
        """Plain over balanced seconds an iteration."""
        return self.plain_s / self.balanced_s

    @property
    def bound(self) -> float:
        """The speedup of perfect balance over the equal split, from the plain segments' speeds."""
        return median(s.bound for s in self.plain)

    @property
    def efficiency(self) -> float:
        """Oracle time over actual time in the balanced segments."""
        return median(s.efficiency for s in self.balanced)

    def as_dict(self, *, shares: list[float], unequal_by: str) -> dict[str, Any]:
        """For the ``--json`` file."""
        return {
            "ddp": _side(self.plain_s, self.plain),
            "lbbsp": _side(self.balanced_s, self.balanced),
            "speedup": self.speedup,
            "bound": self.bound,
            "share_of_bound": self.speedup / self.bound,
            "efficiency": self.efficiency,
            "reached_after_iterations": self.reached_after,
            "allocation": self.allocation,
            "shares": shares,
            "measured_shares": self.measured_shares,
            "unequal_by": unequal_by,
            "loss_max_abs_diff": self.loss_difference,
        }


def figures_of(job: Job, outcome: Outcome) -> Figures:
    """Read the segments' records."""
    whole = [series_of(read_run(folder_of(job, i))) for i in range(len(job.segments))]
    steady = [s.between(min(ADAPTING, job.iterations - 1), job.iterations) for s in whole]
    # A change in mid-run is to be seen in the figure, so then the mean over all iterations counts.
    times = [_typical(s, mean=job.change_at is not None) for s in steady]

    def of(kind: str) -> list[int]:
        return [i for i, mode in enumerate(job.segments) if mode == kind]

    plain, balanced = of("plain"), of("balanced")
    reached = [_reached_after(whole[i], times[i]) for i in balanced]
    difference = max(
        float(np.abs(np.subtract(outcome.losses[p], outcome.losses[b])).max()) for p in plain for b in balanced
    )
    return Figures(
        plain=[summarise(steady[i]) for i in plain],
        balanced=[summarise(steady[i]) for i in balanced],
        plain_s=median(times[i] for i in plain),
        balanced_s=median(times[i] for i in balanced),
        reached_after=max(reached),
        allocation=[int(x) for x in whole[balanced[-1]].sizes[-1]],
        loss_difference=difference,
        series=(whole[plain[0]], whole[balanced[0]]),
        measured_shares=outcome.measured_shares,
    )


def _typical(series: Series, *, mean: bool) -> float:
    return float(np.nanmean(series.iteration_s) if mean else np.nanmedian(series.iteration_s))


def _reached_after(series: Series, steady_s: float) -> int:
    near = np.flatnonzero(series.iteration_s <= _NEAR * steady_s)
    return int(near[0]) if near.size else int(series.iterations.size)


def _side(iter_s: float, summaries: list[Summary]) -> dict[str, Any]:
    return {
        "iter_s": iter_s,
        "iter_s_by_segment": [s.iteration_s for s in summaries],
        "samples_per_s": median(s.samples_per_s for s in summaries),
        "idle_share": [median(values) for values in zip(*(s.idle_share for s in summaries), strict=True)],
        "speeds_samples_per_s": [
            median(values) for values in zip(*(s.speeds_samples_per_s for s in summaries), strict=True)
        ],
    }
