"""The cadence of reports: cheap once settled, every iteration as long as not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbbsp.core.cadence import Cadence, Pace
from lbbsp.errors import ConfigurationError

anything = st.floats(allow_nan=True, allow_infinity=True)


def settled_for(cadence: Cadence, decisions: int, *, cost_s: float, step_s: float) -> Pace:
    pace = Pace()
    for _ in range(decisions):
        pace = cadence.next(pace, settled=True, cost_s=cost_s, step_s=step_s)
    return pace


@given(st.floats(1e-6, 1.0), st.floats(1e-4, 100.0), st.floats(1e-4, 0.2))
def test_reporting_ends_up_within_its_limit_and_no_more_seldom_than_that(
    cost_s: float, step_s: float, limit: float
) -> None:
    cadence = Cadence(max_overhead=limit, longest=1000)
    every = settled_for(cadence, 20, cost_s=cost_s, step_s=step_s).every
    if every < 1000:
        assert cost_s / every <= limit * step_s * (1 + 1e-9)
    if every > 1:
        assert cost_s / (every - 1) >= limit * step_s * (1 - 1e-9)


@given(st.lists(st.tuples(st.booleans(), anything, anything)))
def test_no_cost_and_no_time_can_break_it(events: list[tuple[bool, float, float]]) -> None:
    cadence, pace = Cadence(), Pace()
    for settled, cost_s, step_s in events:
        before, pace = pace, cadence.next(pace, settled=settled, cost_s=cost_s, step_s=step_s)
        assert 1 <= pace.every <= min(cadence.longest, 2 * before.every)
        if not settled or math.isnan(cost_s) or math.isnan(step_s):
            assert pace.every == 1 or pace.settled <= cadence.patience


def test_it_grows_with_patience_and_falls_back_at_once() -> None:
    cadence, pace, seen = Cadence(longest=8, patience=2), Pace(), []
    for settled in [True] * 7 + [False, True]:
        pace = cadence.next(pace, settled=settled, cost_s=1.0, step_s=1.0)
        seen.append(pace.every)
    assert seen == [1, 1, 2, 4, 8, 8, 8, 1, 1]


def test_infinity_is_every_iteration() -> None:
    assert settled_for(Cadence(max_overhead=math.inf), 20, cost_s=1.0, step_s=1e-3).every == 1


@pytest.mark.parametrize(
    "options", [{"max_overhead": -0.1}, {"max_overhead": math.nan}, {"longest": 0}, {"patience": -1}]
)
def test_bad_options(options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="must be"):
        Cadence(**options)  # type: ignore[arg-type]
