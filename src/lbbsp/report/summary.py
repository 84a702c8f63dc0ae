"""A run's few numbers: how fast, how idle, how near to the best possible."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from lbbsp.report.series import FloatArray, Series

__all__ = ["ForecastErrors", "Summary", "summarise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastErrors:
    """Relative errors of the speed forecasts, ``(forecast - measured) / measured``; NaN if there is none.

    Args:
        count: how many.
        bias: their median; above 0 the workers were slower than forecast.
        median_abs: median of their absolute values.
        p90_abs: 90th percentile of their absolute values.
    """

    count: int
    bias: float
    median_abs: float
    p90_abs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run comes to; NaN where it cannot be known.

    Args:
        iterations: how many were recorded.
        iteration_s: median of an iteration's time (the slowest rank's step), seconds.
        samples_per_s: all samples by all time.
        idle_share: of each worker, its waits for others by its time: ``sum_k wait / sum_k step``.
        speeds_samples_per_s: of each worker, v_i: the median of its speeds ``x_i / t_i``.
        bound: the speedup that perfect balance has over the equal split: ``mean_i v_i / min_i v_i``.
        efficiency: ``sum_k oracle / sum_k actual``, the best possible time (``Series.oracle_s``) by the
            iteration's; at most 1.
        forecast: how good the speed forecasts were.
        moves: decisions that moved sizes.
        fallbacks: unusable reports.
        reasons: how many decisions for each reason.
    """

    iterations: int
    iteration_s: float
    samples_per_s: float
    idle_share: tuple[float, ...]
    speeds_samples_per_s: tuple[float, ...]
    bound: float
    efficiency: float
    forecast: ForecastErrors
    moves: int
    fallbacks: int
    reasons: dict[str, int]


def summarise(series: Series) -> Summary:
    """The summary of a series.

    Sums are over the iterations in which both of their numbers are known.

    Example:
        >>> from lbbsp.telemetry import read_run  # doctest: +SKIP
        >>> summary = summarise(series_of(read_run("runs/today"), drop_first=2))  # doctest: +SKIP
        >>> summary.samples_per_s, summary.efficiency  # doctest: +SKIP
        (465.2, 0.97)
    """
    actual_s, oracle_s = series.iteration_s, series.oracle_s
    speeds = np.array([_median(column) for column in series.speeds.T])
    known = speeds[np.isfinite(speeds)]
    return Summary(
        iterations=int(series.iterations.size),
        iteration_s=_median(actual_s),
        samples_per_s=_ratio_of_sums(series.totals.astype(np.float64), actual_s),
        idle_share=tuple(map(_ratio_of_sums, series.wait_s.T, series.step_s.T)),
        speeds_samples_per_s=tuple(speeds.tolist()),
        bound=float(known.mean() / known.min()) if known.size else math.nan,
        efficiency=_ratio_of_sums(oracle_s, actual_s),
        forecast=_forecast_errors(series),
        moves=sum(decision.moved for decision in series.decisions),
        fallbacks=max((decision.fallbacks for decision in series.decisions), default=0),
        reasons=dict(Counter(decision.reason for decision in series.decisions)),
    )


def _forecast_errors(series: Series) -> ForecastErrors:
    # None becomes NaN.
    usable = np.array([e for decision in series.decisions for e in decision.forecast_error], dtype=np.float64)
    usable = usable[np.isfinite(usable)]
    size = np.abs(usable)
    return ForecastErrors(
        count=int(usable.size),
        bias=_median(usable),
        median_abs=_median(size),
        p90_abs=float(np.percentile(size, 90)) if size.size else math.nan,
    )


def _median(values: FloatArray) -> float:
    usable = values[np.isfinite(values)]
    return float(np.median(usable)) if usable.size else math.nan


def _ratio_of_sums(over: FloatArray, under: FloatArray) -> float:
    known = np.isfinite(over) & np.isfinite(under)
    total = float(under[known].sum())
    return float(over[known].sum()) / total if total > 0 else math.nan
