"""The runtime over threads: the same number of exchanges and the same allocations on every rank (I2, I5)."""

from __future__ import annotations

import itertools
import math

import pytest

from lbbsp.core.cadence import Pace
from lbbsp.core.policy import Problem, Proportional
from lbbsp.core.types import Bounds, Report
from lbbsp.errors import ConfigurationError, ExchangeError, RankLostError
from lbbsp.exchange import Exchange, LocalExchange
from lbbsp.exchange.base import raise_together
from lbbsp.runtime import Runtime, Settings
from lbbsp.testing import run_ranks

ITERATIONS = 12


def balanced(exchange: Exchange) -> list[list[int]]:
    """A run in which rank i has the speed i + 1, and rank 0 sometimes measures nonsense."""
    total = 16 * exchange.workers + 1
    problem = Problem(total, Bounds.default(exchange.workers, total))
    lag = 1 + exchange.workers % 2
    runtime = Runtime(exchange, problem, Proportional(), lag=lag, settings=Settings())
    out = []
    for k in range(ITERATIONS):
        runtime.boundary()
        sizes = runtime.sizes(k)
        out.append(sizes.tolist())
        assert int(sizes.sum()) == total
        seconds = sizes[exchange.rank] / (exchange.rank + 1.0)
        runtime.report(k, int(sizes[exchange.rank]), math.nan if exchange.rank == 0 and k == 5 else seconds)
    runtime.boundary()
    assert runtime.boundary() is None
    return out


@pytest.mark.parametrize("workers", range(1, 18))
def test_all_ranks_hold_the_same_allocations(workers: int) -> None:
    results = run_ranks(workers, balanced)
    assert all(r == results[0] for r in results)
    assert len(results[0]) == ITERATIONS
    if workers > 1:
        last = results[0][-1]
        assert last == sorted(last)
        times = [size / (rank + 1) for rank, size in enumerate(last)]
        assert max(times) <= 1.15 * sum(last) / sum(range(1, workers + 1))


def short_steps(exchange: Exchange) -> tuple[list[int], list[list[int]], list[int]]:
    """Equal workers with steps of a millisecond; worker 0 halves its speed for good in iteration 200."""
    total = 16 * exchange.workers
    clock = iter(range(10**9))  # each look at the clock takes 0.1 ms
    runtime = Runtime(
        exchange,
        Problem(total, Bounds.default(exchange.workers, total)),
        Proportional(),
        lag=1,
        settings=Settings(max_overhead=0.01),
        clock=lambda: 1e-4 * next(clock),
    )
    reported, sizes, counted = [], [], []
    for k in range(400):
        decision = runtime.boundary()
        if decision is not None:
            reported.append(decision.decided_at)
            counted.append(decision.report_every)
        x = runtime.sizes(k)
        sizes.append(x.tolist())
        slow = 2.0 if k >= 200 and exchange.rank == 0 else 1.0
        runtime.report(k, int(x[exchange.rank]), slow * 1e-3 * float(x[exchange.rank]) / 16)
    return reported, sizes, counted


@pytest.mark.parametrize("workers", [1, 4])
def test_settled_workers_of_short_steps_report_seldom_and_alike(workers: int) -> None:
    results = run_ranks(workers, short_steps)
    assert all(r == results[0] for r in results)
    reported, sizes, every = results[0]
    assert [b - a for a, b in itertools.pairwise(reported)] == every[: len(reported) - 1]
    before = [k for k in reported if k < 200]
    assert len(before) < 20
    assert max(every) in (30, 31)  # three looks at the clock a report, 0.3 ms, are 1% of 30 steps of 1 ms
    if workers > 1:  # the change is met by the next report, and reports come each iteration again
        moved = next(k for k, x in enumerate(sizes) if x != sizes[0])
        assert 200 < moved <= 200 + 31
        assert sizes[-1][0] < 0.75 * sizes[-1][1]
        assert 1 in every[len(before) :]


def test_a_report_holds_the_mean_since_the_last_one() -> None:
    (end,) = LocalExchange.group(1)
    runtime = Runtime(end, Problem(8, Bounds.default(1, 8)), Proportional(), lag=1, settings=Settings(warm_up=0))
    runtime.engine._pace = Pace(every=4)
    runtime.engine._last_handled = 0
    for k, seconds in enumerate([1.0, 2.0, -1.0, 6.0], start=1):
        assert runtime.boundary() is None
        runtime.report(k, 8, seconds)
    decision = runtime.boundary()
    assert decision is not None
    assert decision.decided_at == 4
    assert decision.forecast.tolist() == [8 / 3.0]


def test_a_rank_that_does_not_come_is_named() -> None:
    def work(exchange: Exchange) -> None:
        exchange.gather([1.0])
        if exchange.rank != 2:
            exchange.gather([2.0])

    with pytest.raises(RankLostError, match=r"waited 0.5 s for gather 1: rank\(s\) \[2\] did not come") as caught:
        run_ranks(4, work, time_limit_s=0.5)
    assert caught.value.ranks == (2,)


def test_an_error_on_one_rank_is_raised_on_all() -> None:
    def check(exchange: Exchange) -> str:
        def own() -> str:
            if exchange.rank == 1:
                raise ConfigurationError("value 7: must be 6")
            return "fine"

        try:
            raise_together(exchange, own)
        except ConfigurationError as error:
            return str(error)
        return "no error"

    results = run_ranks(3, check)
    assert results == ["rank 1: value 7: must be 6", "value 7: must be 6", "rank 1: value 7: must be 6"]


def test_posting_twice_and_collecting_nothing_are_errors() -> None:
    report = Report(0, 1, 1.0, 1.0, 0.0, math.nan, math.nan, 0)
    (end,) = LocalExchange.group(1)
    with pytest.raises(ExchangeError, match="post one first"):
        end.collect()
    end.post(report)
    with pytest.raises(ExchangeError, match="collect it first"):
        end.post(report)
    assert end.collect().size.tolist() == [1]


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
def test_time_limits_are_checked(limit: float) -> None:
    with pytest.raises(ConfigurationError, match="time_limit_s"):
        LocalExchange.group(2, time_limit_s=limit)
