from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbbsp.errors import ConfigurationError, TelemetryError
from lbbsp.report import Series, series_of, summarise
from lbbsp.telemetry import IterationRecord, Record, Run
from tests.telemetry.records import decision, event, iteration, run_record

seconds = st.none() | st.sampled_from([0.0, -1.0, math.nan, math.inf]) | st.floats(1e-6, 1e6)


def run_of(*records: Record, workers: int = 2) -> Run:
    return Run.of([run_record(workers=workers), *records])


@st.composite
def cut_runs(draw: st.DrawFn) -> Run:
    workers = draw(st.integers(1, 4))
    records = st.builds(
        iteration,
        st.integers(0, workers - 1),
        st.integers(0, 6) | st.integers(0, 2**50),
        size=st.integers(0, 64),
        total=st.integers(0, 64),
        compute_s=seconds,
        wait_s=seconds,
        step_s=seconds,
    )
    return run_of(*draw(st.lists(records, max_size=20)), workers=workers)


@st.composite
def whole_runs(draw: st.DrawFn) -> Run:
    """Runs in which a step lasts as long as the slowest rank computes, or longer."""
    workers, records = draw(st.integers(1, 4)), list[Record]()
    for k in range(draw(st.integers(1, 5))):
        sizes = draw(st.lists(st.integers(0, 64), min_size=workers, max_size=workers).filter(any))
        times = [draw(st.floats(1e-3, 1e3)) for _ in sizes]
        step_s = max(times) + draw(st.floats(0, 1))
        for rank, (size, compute_s) in enumerate(zip(sizes, times, strict=True)):
            wait_s = step_s - compute_s
            records.append(
                iteration(rank, k, size=size, total=sum(sizes), compute_s=compute_s, wait_s=wait_s, step_s=step_s)
            )
    return run_of(*records, workers=workers)


@settings(max_examples=50)
@given(cut_runs(), st.integers(0, 10))
def test_any_run_has_series_and_a_summary(run: Run, drop_first: int) -> None:
    series = series_of(run, drop_first=drop_first)
    found = len({record.iteration for record in run.iterations})
    shape = (max(0, found - drop_first), run.workers)
    assert {m.shape for m in (series.sizes, series.compute_s, series.wait_s, series.step_s, series.speeds)} == {shape}
    assert np.all(np.diff(series.iterations) > 0)
    summary = summarise(series)
    assert summary.iterations == shape[0]
    assert len(summary.idle_share) == len(summary.speeds_samples_per_s) == run.workers
    assert math.isnan(summary.bound) or summary.bound >= 1 - 1e-12


@given(whole_runs())
def test_the_oracle_is_never_slower_than_what_happened(run: Run) -> None:
    series = series_of(run)
    summary = summarise(series)
    assert series.complete.all()
    assert (series.oracle_s <= series.iteration_s * (1 + 1e-12)).all()
    assert 0 < summary.efficiency <= 1 + 1e-12
    assert all(0 <= share < 1 for share in summary.idle_share)


@settings(max_examples=50)
@given(cut_runs())
def test_the_later_record_of_an_iteration_counts(run: Run) -> None:
    newest = {(record.iteration, record.rank): record for record in run.iterations}
    series = series_of(run)
    for row, k in enumerate(series.iterations.tolist()):
        for rank in range(run.workers):
            record = newest.get((k, rank))
            assert series.sizes[row, rank] == record.size if record else np.isnan(series.sizes[row, rank])


def two_iterations() -> list[IterationRecord]:
    return [
        iteration(0, 0, size=48, compute_s=1.0, wait_s=1.0, step_s=2.0),
        iteration(1, 0, size=16, compute_s=2.0, wait_s=0.0, step_s=2.0),
        iteration(0, 1, size=48, compute_s=1.0, wait_s=0.5, step_s=1.5),
        iteration(1, 1, size=16, compute_s=1.0, wait_s=0.5, step_s=1.5),
    ]


def test_numbers_by_hand() -> None:
    errors = decision(1, error=(0.1, None)), decision(2, error=(-0.3, 0.2), reason="unchanged", fallbacks=2)
    series = series_of(run_of(*two_iterations(), *errors))
    assert series.speeds.tolist() == [[48, 8], [48, 16]]
    assert series.oracle_s == pytest.approx([64 / 56, 1.0])
    summary = summarise(series)
    assert summary.iteration_s == 1.75
    assert summary.samples_per_s == pytest.approx(128 / 3.5)
    assert summary.idle_share == pytest.approx((1.5 / 3.5, 0.5 / 3.5))
    assert summary.speeds_samples_per_s == (48.0, 12.0)
    assert summary.bound == 30 / 12
    assert summary.efficiency == pytest.approx((64 / 56 + 1.0) / 3.5)
    assert summary.forecast.count == 3
    assert summary.forecast.bias == 0.1
    assert summary.forecast.median_abs == 0.2
    assert summary.forecast.p90_abs == pytest.approx(0.28)
    assert summary.moves == 1
    assert summary.fallbacks == 2
    assert summary.reasons == {"moved": 1, "unchanged": 1}


def test_a_missing_rank_makes_no_false_oracle() -> None:
    series = series_of(run_of(*two_iterations()[:3]))
    assert series.complete.tolist() == [True, False]
    assert series.oracle_s[0] == pytest.approx(64 / 56)
    assert np.isnan(series.oracle_s[1])
    assert series.iteration_s.tolist() == [2.0, 1.5]
    assert summarise(series).efficiency == pytest.approx(64 / 56 / 2)


def test_an_unmeasured_time_makes_no_false_oracle() -> None:
    series = series_of(run_of(iteration(0, 0, size=48, compute_s=None), iteration(1, 0, size=16)))
    assert np.isnan(series.oracle_s[0])
    assert summarise(series).speeds_samples_per_s[1] == 32


def test_an_idle_worker_has_no_speed_and_spoils_nothing() -> None:
    series = series_of(run_of(iteration(0, 0, size=64, compute_s=2.0), iteration(1, 0, size=0, compute_s=0.01)))
    assert np.isnan(series.speeds[0, 1])
    assert series.oracle_s.tolist() == [2.0]


def test_one_worker_and_one_iteration() -> None:
    summary = summarise(series_of(run_of(iteration(0, 5, size=64, wait_s=0.0), workers=1)))
    assert (summary.bound, summary.iteration_s, summary.idle_share) == (1.0, 1.0, (0.0,))
    assert summary.efficiency == 0.5


def test_a_run_killed_before_its_first_iteration() -> None:
    summary = summarise(series_of(run_of()))
    assert summary.iterations == 0
    assert all(map(math.isnan, (summary.iteration_s, summary.samples_per_s, summary.bound, summary.efficiency)))
    assert summary.reasons == {}


def test_dropping_the_warm_up_drops_its_decisions() -> None:
    decisions = [decision(k, error=(9.0, 9.0) if k == 0 else (0.0, 0.0)) for k in range(3)]
    series = series_of(run_of(*two_iterations(), *decisions), drop_first=1)
    assert series.iterations.tolist() == [1]
    assert [d.iteration for d in series.decisions] == [1, 2]
    assert series_of(run_of(*two_iterations()), drop_first=9).iterations.size == 0
    with pytest.raises(ConfigurationError, match="drop_first=-1"):
        series_of(run_of(), drop_first=-1)


def test_after_a_restart_the_later_decision_counts() -> None:
    first, again = decision(1, (40, 24)), decision(1, (50, 14))
    assert series_of(run_of(first, decision(2), again)).decisions == (again, decision(2))


def test_between() -> None:
    records = [iteration(r, k, size=32 + k) for k in range(6) for r in (0, 1)]
    series = series_of(run_of(*records, decision(2), decision(5), event(k=3), event(k=0)))
    part = series.between(2, 4)
    assert isinstance(part, Series)
    assert part.iterations.tolist() == [2, 3, 4]
    assert part.sizes[:, 0].tolist() == [34, 35, 36]
    assert part.decisions == (decision(2),)
    assert part.events == (event(k=3),)


def test_a_rank_of_another_run_is_an_error() -> None:
    with pytest.raises(TelemetryError, match="rank 7, but the run has 2 workers"):
        series_of(run_of(iteration(7)))
