"""Where workers and competitors go, as pure arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbbsp.errors import ConfigurationError
from lbbsp.interfere.plan import place

FOUR = [0.8, 0.5, 0.3, 0.2]


def test_fast_workers_meet_on_one_core_and_competitors_on_the_other() -> None:
    placement = place(FOUR, [4, 7], least_nices=[0] * 4, before=[None] * 4)
    assert placement.cores == (4, 4, 7, 7)
    assert {core for core, _ in placement.competitors} == {7}
    scale = 1 / 1.3
    assert placement.shares == pytest.approx([share * scale for share in FOUR], rel=0.13)


def test_change_moves_the_competitors_and_not_the_workers() -> None:
    first = place(FOUR, [0, 1], least_nices=[0] * 4, before=[None] * 4)
    second = place(FOUR[::-1], [0, 1], least_nices=first.nices, before=first.cores)
    assert second.cores == first.cores
    assert {core for core, _ in second.competitors} == {0}
    assert all(new >= old for new, old in zip(second.nices, first.nices, strict=True))
    assert second.shares == pytest.approx(first.shares[::-1], rel=0.15)


def test_a_core_for_each_worker_gives_the_shares_themselves() -> None:
    placement = place([0.9, 0.25], [0, 1, 2], least_nices=[0, 0], before=[None, None])
    assert placement.shares == pytest.approx([0.9, 0.25], rel=0.1)


def test_uneven_numbers_leave_the_fast_core_with_fewer() -> None:
    assert place([0.1, 0.2, 0.9], [0, 1], least_nices=[0] * 3, before=[None] * 3).cores == (1, 1, 0)


def test_out_of_reach_names_worker_share_and_bound() -> None:
    with pytest.raises(ConfigurationError, match=r"share 0.001 of worker 1: .* nice ends at 19"):
        place([1.0, 0.001], [0], least_nices=[0, 0], before=[None, None])


@given(
    shares=st.lists(st.floats(0.2, 1.0), min_size=1, max_size=9),
    cores=st.integers(1, 5),
    own_nice=st.integers(0, 5),
)
def test_shares_come_out_in_proportion(shares: list[float], cores: int, own_nice: int) -> None:
    placement = place(
        shares,
        range(cores),
        own_nice=own_nice,
        least_nices=[own_nice] * len(shares),
        before=[None] * len(shares),
    )
    by_core = {core: [i for i, c in enumerate(placement.cores) if c == core] for core in set(placement.cores)}
    scale = 1 / max(1.0, *(sum(shares[i] for i in workers) for workers in by_core.values()))
    for want, got in zip(shares, placement.shares, strict=True):
        assert got == pytest.approx(scale * want, rel=0.25)
    for workers in by_core.values():
        assert sum(placement.shares[i] for i in workers) <= 1 + 1e-12
    assert all(own_nice <= nice <= 19 for nice in placement.nices)
    assert all(own_nice <= nice <= 19 for _, nice in placement.competitors)
