"""I1 for every sizing algorithm, optimality for the min-max solver, and errors with their numbers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lbbsp.core.allocate import DeadBand, apportion, equal_split, minmax, proportional, short_split
from lbbsp.core.time_models import AffineTimes, LinearTimes, TableTimes, TimeModels
from lbbsp.core.types import Bounds, FloatArray, IntArray
from lbbsp.errors import ConfigurationError, InfeasibleBoundsError

speeds_of_any_size = st.floats(1e-6, 1e6) | st.floats(5e-324, 1e300)


@st.composite
def feasible(draw: st.DrawFn, most_workers: int = 17, most: int = 200) -> tuple[int, Bounds]:
    """A global batch and bounds that admit it."""
    g = draw(st.sampled_from([1, 1, 1, 2, 3, 8]))
    lo = draw(st.lists(st.integers(0, 20), min_size=1, max_size=most_workers))
    gaps = draw(st.lists(st.integers(0, most), min_size=len(lo), max_size=len(lo)))
    low, high = [g * v for v in lo], [g * (v + w) for v, w in zip(lo, gaps, strict=True)]
    total = g * draw(st.integers(sum(lo), sum(lo) + sum(gaps)))
    return total, Bounds(np.array(low), np.array(high), g)


def bounded_quota(weights: list[float], total: int, lo: list[int], hi: list[int]) -> list[Fraction]:
    """The exact quotas clip(r w, lo, hi) that sum to total, by bisection on fractions' corners."""
    w = [Fraction(v) for v in weights]
    corners = sorted({Fraction(b) / v for v, a, c in zip(w, lo, hi, strict=True) for b in (a, c)})

    def at(r: Fraction) -> list[Fraction]:
        return [min(max(r * v, Fraction(a)), Fraction(b)) for v, a, b in zip(w, lo, hi, strict=True)]

    before = corners[0]
    for corner in corners:
        if sum(at(corner)) >= total:
            low, high = sum(at(before)), sum(at(corner))
            part = Fraction(total - low) / Fraction(high - low) if high > low else Fraction(0)
            return at(before + part * (corner - before))
        before = corner
    return at(corners[-1])


@given(feasible(), st.data())
def test_every_algorithm_keeps_sum_bounds_and_granularity(case: tuple[int, Bounds], data: st.DataObject) -> None:
    total, bounds = case
    w = bounds.workers
    speeds = np.array(data.draw(st.lists(speeds_of_any_size, min_size=w, max_size=w)))
    for sizes in (
        proportional(speeds, total, bounds),
        equal_split(total, bounds),
        minmax(LinearTimes(np.clip(speeds, 1e-100, 1e100)), total, bounds),
    ):
        assert sizes.dtype == np.int64
        assert bounds.admit(sizes, total)


@pytest.mark.parametrize("workers", [1, 2, 3, 17, 1000, 10_000])
@pytest.mark.parametrize("total_of", [lambda w: w, lambda w: 64 * w, lambda w: 104_729])
def test_many_workers_and_prime_totals(workers: int, total_of: object) -> None:
    total = total_of(workers)  # type: ignore[operator]
    bounds = Bounds.default(workers, total)
    speeds = np.random.default_rng(workers).lognormal(0, 2, workers)
    for sizes in (
        proportional(speeds, total, bounds),
        minmax(LinearTimes(speeds), total, bounds),
    ):
        assert bounds.admit(sizes, total)


@given(st.lists(st.integers(-200, 200), min_size=2, max_size=6), st.data())
def test_weights_of_any_magnitude_keep_sum_bounds_and_quota(exponents: list[int], data: st.DataObject) -> None:
    w = len(exponents)
    weights = [10.0 ** (e / 2 + 5.0) for e in exponents]
    hi = data.draw(st.lists(st.integers(1, 50), min_size=w, max_size=w))
    total = data.draw(st.integers(0, sum(hi)))
    bounds = Bounds(np.zeros(w, np.int64), np.array(hi))
    sizes = apportion(weights, total, bounds)
    assert bounds.admit(sizes, total)
    for size, quota in zip(sizes.tolist(), bounded_quota(weights, total, [0] * w, hi), strict=True):
        assert abs(size - quota) < 1 + Fraction(1, 10**6)


@pytest.mark.parametrize("hi", [2**63 - 1, 2**62, 2**53 + 1])
@pytest.mark.parametrize("g", [1, 3])
def test_an_upper_bound_that_means_any_number_overflows_nothing(hi: int, g: int) -> None:
    bounds = Bounds(np.zeros(5, np.int64), np.full(5, hi), g)
    for sizes in (
        proportional(np.array([1.0, 2, 3, 4, 5]), 150, bounds),
        minmax(LinearTimes([1.0, 2, 3, 4, 5]), 150, bounds),
    ):
        assert sizes.sum() == 150
        assert bounds.admit(sizes, 150)
    assert not bounds.admit(np.array([2**62, 2**62, 2**62, 2**62, 150]), 150)  # their sum wraps around


@pytest.mark.parametrize("bad", [1.5, math.nan, math.inf, 2.0**63])
def test_bounds_must_be_whole_numbers(bad: float) -> None:
    with pytest.raises(ConfigurationError, match="whole numbers of samples"):
        Bounds(np.zeros(2), np.array([4.0, bad]))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="granularity"):
        Bounds(np.zeros(2, np.int64), np.full(2, 8), bad)  # type: ignore[arg-type]
    whole = np.array([4.0, 2.0])
    assert Bounds(np.zeros(2), whole).hi.tolist() == [4, 2]  # type: ignore[arg-type]


def test_a_batch_too_large_to_count_in_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="can share"):
        Bounds(np.zeros(2, np.int64), np.full(2, 2**62)).in_units(2**60)


@given(feasible(most_workers=8, most=60), st.data())
def test_proportional_is_within_a_granule_of_the_exact_quota(case: tuple[int, Bounds], data: st.DataObject) -> None:
    total, bounds = case
    w, g = bounds.workers, bounds.granularity
    speeds = data.draw(st.lists(st.floats(0.01, 100), min_size=w, max_size=w))
    quotas = bounded_quota(speeds, total // g, (bounds.lo // g).tolist(), (bounds.hi // g).tolist())
    for size, quota in zip(proportional(speeds, total, bounds).tolist(), quotas, strict=True):
        assert abs(Fraction(size, g) - quota) < 1 + Fraction(1, 10**6)


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=9),
    st.integers(1, 300),
    st.randoms(use_true_random=False),
)
def test_permuting_workers_permutes_the_sizes(speeds: list[float], total: int, random: object) -> None:
    assume(total >= len(speeds))
    bounds = Bounds.default(len(speeds), total)
    shuffled = list(range(len(speeds)))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    v = np.array(speeds)
    for solve in (
        lambda s: proportional(s, total, bounds),
        lambda s: minmax(LinearTimes(s), total, bounds),
    ):
        straight, permuted = solve(v)[shuffled], solve(v[shuffled])  # type: ignore[no-untyped-call]
        assert np.abs(straight - permuted).max() <= 1  # workers that tie may change places
        if len(set(speeds)) == len(speeds) and (straight != permuted).any():
            # Different speeds tie too, where their times do.
            times = np.sort(straight / v[shuffled]), np.sort(permuted / v[shuffled])
            assert np.allclose(times[0].max(), times[1].max())


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[TimeModels, int, Bounds]:
    """At most 4 workers and 12 granules, affine or tabled times with plateaus and ties."""
    w, g = draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 2, 3]))
    lo = [g * draw(st.integers(0, 2)) for _ in range(w)]
    hi = [low + g * draw(st.integers(0, 8)) for low in lo]
    total = g * draw(st.integers(sum(lo) // g, sum(hi) // g))
    bounds = Bounds(np.array(lo), np.array(hi), g)
    if draw(st.booleans()):
        numbers = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.0]) | st.floats(0, 10)
        columns = [np.array([draw(numbers) for _ in range(w)]) for _ in range(3)]
        return AffineTimes(*columns), total, bounds
    step = st.sampled_from([0.0, 0.0, 1.0, 2.5]) | st.floats(0, 3)
    rows = [np.cumsum([draw(step) for _ in range(max(hi) + 1)]) for _ in range(w)]
    return TableTimes(rows), total, bounds


def by_force(models: TimeModels, total: int, bounds: Bounds) -> float:
    """The least slowest time over all allocations."""
    ranges = [range(int(a), int(b) + 1) for a, b in zip(bounds.lo, bounds.hi, strict=True)]
    return min(float(models.time_s(np.array(x)).max()) for x in itertools.product(*ranges) if bounds.admit(x, total))


@settings(max_examples=150)
@given(small_problems())
def test_minmax_equals_brute_force(problem: tuple[TimeModels, int, Bounds]) -> None:
    models, total, bounds = problem
    sizes = minmax(models, total, bounds)
    assert bounds.admit(sizes, total)
    assert float(models.time_s(sizes).max()) == by_force(models, total, bounds)


@st.composite
def affine_problems(draw: st.DrawFn) -> tuple[AffineTimes | LinearTimes, int, Bounds]:
    """Larger ones, with extreme and degenerate coefficients."""
    total, bounds = draw(feasible(most=5000))
    w = bounds.workers
    if draw(st.booleans()):
        speed = st.sampled_from([1.0, 2.0]) | st.floats(0.5, 50.0) | speeds_of_any_size
        return LinearTimes(draw(st.lists(speed, min_size=w, max_size=w))), total, bounds
    coefficient = st.sampled_from([0.0, 1e-12, 1.0]) | st.floats(0, 1e6)
    columns = [np.array(draw(st.lists(coefficient, min_size=w, max_size=w))) for _ in range(3)]
    return AffineTimes(*columns), total, bounds


@given(affine_problems())
def test_minmax_has_its_certificate_and_beats_the_equal_split(
    problem: tuple[AffineTimes | LinearTimes, int, Bounds],
) -> None:
    """No granule can be moved so that the slowest gets faster, and it is never worse than not balancing."""
    models, total, bounds = problem
    g = bounds.granularity
    sizes = minmax(models, total, bounds)
    times = models.time_s(sizes)
    taken, room = times[sizes > bounds.lo], sizes < bounds.hi
    following = models.time_s(sizes + g)[room]
    if taken.size and following.size:
        assert taken.max() <= following.min()
    assert times.max() <= models.time_s(equal_split(total, bounds)).max()
    speeds = models.speeds if isinstance(models, LinearTimes) else 1 / (models.per_sample_s + 1e-3)
    assert times.max() <= models.time_s(proportional(speeds, total, bounds)).max()


class Guessing:
    """Time models with a guess of the test's."""

    def __init__(self, models: TimeModels, guess: tuple[float, float]) -> None:
        self._models, self._guess = models, guess

    def __getattr__(self, name: str) -> Any:
        return getattr(self._models, name)

    def limit_guess_s(self, total: int) -> tuple[float, float]:
        return self._guess


@given(
    affine_problems(),
    st.sampled_from([(math.nan, 1.0), (-5.0, 0.0), (0.0, 0.0), (1e300, 1e300), (3.0, -1.0)]),
)
def test_neither_a_wild_guess_nor_none_changes_anything(
    problem: tuple[AffineTimes | LinearTimes, int, Bounds], guess: tuple[float, float]
) -> None:
    models, total, bounds = problem
    assert minmax(Guessing(models, guess), total, bounds).tolist() == minmax(models, total, bounds).tolist()


@given(st.integers(1, 40), st.integers(0, 3000), st.sampled_from([0.0, 7.0, 1e9]))
def test_equal_workers_get_equal_sizes(workers: int, extra: int, flat_s: float) -> None:
    total = workers + extra
    times = AffineTimes(np.full(workers, flat_s), np.zeros(workers), np.full(workers, 0.1))
    assert np.ptp(minmax(times, total, Bounds.default(workers, total))) <= 1


@given(affine_problems(), st.floats(-1, 1e7))
def test_largest_within_is_exact(problem: tuple[AffineTimes | LinearTimes, int, Bounds], limit_s: float) -> None:
    models, _, bounds = problem
    x = models.largest_within(limit_s, bounds.lo, bounds.hi)
    assert ((models.time_s(x) <= limit_s) | (x == bounds.lo)).all()
    assert ((models.time_s(x + 1) > limit_s) | (x == bounds.hi)).all()


def test_steps_too_small_to_resolve() -> None:
    """Times whose increments vanish in rounding are ties, and ties are split evenly."""
    times = AffineTimes(np.zeros(3), np.array([1e6, 1e6, 1e6]), np.full(3, 1e-12))
    sizes = minmax(times, 300_000, Bounds.default(3, 300_000))
    assert sizes.sum() == 300_000
    assert np.ptp(sizes) <= 1


@given(st.lists(st.integers(0, 50), min_size=1, max_size=17), st.data())
def test_short_split(sizes: list[int], data: st.DataObject) -> None:
    assume(sum(sizes) > 0)
    x: IntArray = np.array(sizes)
    bounds = Bounds(np.minimum(x, 2), np.full(x.size, 60))
    total = data.draw(st.integers(1, int(x.sum())))
    short = short_split(x, total, bounds)
    assert int(short.sum()) == total
    assert (short <= x).all()
    if int(np.minimum(bounds.lo, x).sum()) <= total:
        assert (short >= np.minimum(bounds.lo, x)).all()
    quota: FloatArray = x * total / x.sum()
    if (quota >= np.minimum(bounds.lo, x)).all():
        assert np.abs(short - quota).max() < 1 + 1e-6


@given(
    st.lists(st.integers(-3, 30), min_size=1, max_size=6),
    st.lists(st.integers(-3, 30), min_size=1, max_size=6),
    st.integers(1, 200),
    st.integers(0, 5),
)
def test_infeasible_bounds_are_an_error_with_the_numbers_and_nothing_else_is(
    lo: list[int], hi: list[int], total: int, g: int
) -> None:
    try:
        bounds = Bounds(np.array(lo), np.array(hi), g)
    except ConfigurationError as error:
        bad = len(lo) != len(hi) or g < 1 or any(a < 0 or a > b for a, b in zip(lo, hi, strict=True))
        message = str(error)
        assert bad
        assert any(str(v) in message for v in [*lo, *hi, g, len(lo)])
        return
    least = sum(-(-a // g) * g for a in lo)
    most = sum(b // g * g for b in hi)
    crossed = any(-(-a // g) > b // g for a, b in zip(lo, hi, strict=True))
    possible = total % g == 0 and not crossed and least <= total <= most
    for solve in (
        lambda: equal_split(total, bounds),
        lambda: minmax(LinearTimes(np.ones(len(lo))), total, bounds),
    ):
        if possible:
            assert bounds.admit(solve(), total)  # type: ignore[no-untyped-call]
            continue
        with pytest.raises(InfeasibleBoundsError) as caught:
            solve()  # type: ignore[no-untyped-call]
        assert str(total) in str(caught.value) or str(g) in str(caught.value)


@pytest.mark.parametrize("speeds", [[1.0, math.nan], [1.0, 0.0], [1.0, -2.0], [1.0, math.inf], [1.0]])
def test_bad_speeds_are_refused(speeds: list[float]) -> None:
    with pytest.raises(ConfigurationError):
        apportion(speeds, 10, Bounds.default(2, 10))
    if len(speeds) == 2:
        with pytest.raises(ConfigurationError):
            LinearTimes(speeds)


@pytest.mark.parametrize(
    "options",
    [{"min_gain": -0.1}, {"min_gain": 1.0}, {"min_gain": math.nan}, {"move_cost_s": -1}, {"horizon": 0}],
)
def test_dead_band_options(options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        DeadBand(**options)  # type: ignore[arg-type]


@given(st.floats(0.001, 1e3), st.floats(0.001, 1e3), st.floats(0, 0.9), st.floats(0, 10), st.integers(1, 1000))
def test_dead_band_needs_gain_beyond_its_width_and_the_cost(
    before: float, after: float, width: float, cost: float, horizon: int
) -> None:
    band = DeadBand(min_gain=width, move_cost_s=cost, horizon=horizon)
    assert band.worth(before, after) == (before - after > width * before and (before - after) * horizon > cost)
