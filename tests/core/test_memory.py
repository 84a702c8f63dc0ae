"""The upper fit of memory: no peak above the line, no cap above what fits, none below what has been run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbbsp.core.memory import PeakState, UpperFit
from lbbsp.errors import ConfigurationError

GB = 1e9
sizes = st.lists(st.integers(1, 4096), min_size=1, max_size=24)


def learn(fit: UpperFit, runs: list[tuple[int, float]], resting: float = 0.0) -> PeakState:
    """After these runs of (size, peak)."""
    state = PeakState()
    for size, peak in runs:
        state = fit.step(state, size=size, peak_bytes=peak, resting_bytes=resting)
    return state


def test_nothing_known_is_no_cap() -> None:
    fit = UpperFit()
    assert fit.cap(PeakState(), limit_bytes=GB) == math.inf
    state = fit.step(PeakState(), size=8, peak_bytes=None)
    assert fit.cap(state, limit_bytes=GB) == math.inf
    assert fit.cap(learn(fit, [(8, GB)]), limit_bytes=math.nan) == math.inf


def test_one_size_and_the_rest_make_a_line() -> None:
    state = learn(UpperFit(), [(10, 3 * GB)], resting=GB)
    assert UpperFit().line(state) == (GB, 0.2 * GB)
    assert UpperFit(margin=0.0).cap(state, limit_bytes=4.61 * GB) == 18
    assert UpperFit(margin=0.0).cap(state, limit_bytes=40 * GB) == 20, "no further than twice what was run"


@given(runs=st.lists(st.tuples(st.integers(1, 4096), st.floats(1.0, 1e12)), min_size=1, max_size=24))
def test_no_remembered_peak_is_above_the_line(runs: list[tuple[int, float]]) -> None:
    fit = UpperFit()
    state = learn(fit, runs, resting=min(peak for _, peak in runs) / 2)
    fixed, per_sample = fit.line(state)
    assert per_sample >= 0
    assert len(state.sizes) <= fit.keep
    for size, peak in zip(state.sizes, state.peaks_bytes, strict=True):
        assert fixed + per_sample * size >= peak * (1 - 1e-9)


@given(
    run=sizes,
    fixed=st.floats(0, 1e10),
    per_sample=st.floats(1e3, 1e8),
    rest=st.floats(0, 1),
    room=st.floats(1.0, 20.0),
    seed=st.integers(0, 2**31),
)
def test_an_affine_need_is_never_exceeded(
    run: list[int], fixed: float, per_sample: float, rest: float, room: float, seed: int
) -> None:
    """Noise of up to 2% on the peaks, as allocators have it: the cap's true need stays within the limit."""
    rng = np.random.default_rng(seed)
    need = [fixed + per_sample * x for x in run]
    fit = UpperFit(margin=0.1)
    noisy = [(x, m * (1 - 0.02 * rng.random())) for x, m in zip(run, need, strict=True)]
    state = learn(fit, noisy, resting=rest * fixed)
    limit = room * max(need)
    cap = fit.cap(state, limit_bytes=limit)
    assert max(run) <= cap <= fit.reach * max(run)
    if cap > max(run):
        assert fixed + per_sample * cap <= limit


def test_an_odd_peak_moves_the_line_up_but_not_its_slope() -> None:
    runs = [(x, GB + 0.1 * GB * x) for x in (8, 12, 16, 20, 24, 28)]
    odd = [*runs[:1], (12, runs[1][1] + GB), *runs[2:]]
    fixed, per_sample = UpperFit().line(learn(UpperFit(), odd))
    assert per_sample == pytest.approx(0.1 * GB)
    assert fixed == pytest.approx(2 * GB)


def test_flat_memory_is_capped_by_the_reach_alone() -> None:
    state = learn(UpperFit(), [(8, GB), (16, GB), (32, GB)], resting=GB)
    assert UpperFit().cap(state, limit_bytes=1.2 * GB) == 64


def test_the_smallest_sizes_are_forgotten_first() -> None:
    state = learn(UpperFit(keep=3), [(5, 1.0), (1, 1.0), (9, 1.0), (7, 1.0)])
    assert state.sizes == (5, 7, 9)


@given(run=sizes, failed=st.integers(1, 4096), limit=st.floats(1e3, 1e12))
def test_the_cap_after_a_failure_is_below_it(run: list[int], failed: int, limit: float) -> None:
    fit = UpperFit()
    state = learn(fit, [(x, 1e6 * x) for x in run])
    cap = fit.cap_after_failure(state, size=failed, limit_bytes=limit)
    assert 0 <= cap < failed
    assert all(x <= cap for x in state.sizes if x < failed)


def test_the_cap_after_a_failure_without_any_knowledge() -> None:
    assert UpperFit().cap_after_failure(PeakState(), size=40) == 32
    assert UpperFit().cap_after_failure(PeakState(), size=1) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 1.0}, "margin=1.0"),
        ({"margin": math.nan}, "margin=nan"),
        ({"reach": 1.0}, "reach=1.0"),
        ({"backoff": 1.0}, "backoff=1.0"),
        ({"keep": 2}, "keep=2"),
    ],
)
def test_bad_values(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        UpperFit(**options)  # type: ignore[arg-type]
