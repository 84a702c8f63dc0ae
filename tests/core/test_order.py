"""I3: every sample of an epoch once, in an order that W and the allocation do not touch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbbsp.core.allocate import apportion, short_split
from lbbsp.core.order import EpochPlan, global_order, worker_slice
from lbbsp.core.types import Bounds
from lbbsp.core.weights import mean_weight, share
from lbbsp.errors import ConfigurationError


def test_the_order_is_frozen() -> None:
    """Golden values: a run resumed with another NumPy must see the same order."""
    assert global_order(12, seed=0, epoch=0).tolist() == GOLDEN[0]
    assert global_order(12, seed=0, epoch=1).tolist() == GOLDEN[1]
    assert global_order(12, seed=7, epoch=0).tolist() == GOLDEN[2]


@given(st.integers(1, 2000), st.integers(0, 2**63), st.integers(0, 1000))
def test_it_is_a_permutation_set_by_seed_and_epoch(length: int, seed: int, epoch: int) -> None:
    order = global_order(length, seed=seed, epoch=epoch)
    assert sorted(order.tolist()) == list(range(length))
    assert order.tolist() == global_order(length, seed=seed, epoch=epoch).tolist()
    if length > 50:
        assert order.tolist() != global_order(length, seed=seed, epoch=epoch + 1).tolist()
        assert order.tolist() != global_order(length, seed=seed + 1, epoch=epoch).tolist()
    assert global_order(length, seed=seed, epoch=epoch, shuffle=False).tolist() == list(range(length))


@given(st.integers(1, 17), st.integers(0, 60), st.integers(0, 400), st.booleans(), st.integers(0, 10**6))
def test_slices_tile_each_epoch(workers: int, extra_x: int, extra_n: int, drop_last: bool, seed: int) -> None:
    x = workers + extra_x
    plan = EpochPlan(x + extra_n, x, drop_last)
    bounds = Bounds.default(workers, x)
    rng = np.random.default_rng(seed)
    used: list[int] = []
    for k in range(plan.iterations):
        sizes = apportion(rng.exponential(size=workers) + 1e-3, x, bounds)
        sizes = short_split(sizes, plan.total(k), bounds)
        assert int(sizes.sum()) == plan.total(k)
        assert 0 < plan.total(k) <= x
        mine = [p for worker in range(workers) for p in worker_slice(plan.positions(k), sizes, worker)]
        assert mine == list(plan.positions(k))
        used.extend(mine)
    expected = plan.length - (plan.length % x if drop_last else 0)
    assert used == list(range(expected))


@pytest.mark.parametrize(("length", "message"), [(0, "empty"), (7, "7 samples, fewer than one global batch of 8")])
def test_a_dataset_must_hold_a_global_batch(length: int, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        EpochPlan(length, 8)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=17), st.integers(0, 10**6))
def test_weighted_means_of_means_are_the_global_mean(sizes: list[int], seed: int) -> None:
    total, workers = sum(sizes), len(sizes)
    if total == 0:
        return
    values = np.random.default_rng(seed).normal(size=total)
    edges = np.cumsum([0, *sizes])
    means = [values[a:b].mean() if b > a else 1e9 for a, b in itertools.pairwise(edges)]
    scale = np.abs(values).max()
    summed = sum(share(n, total) * m for n, m in zip(sizes, means, strict=True))
    averaged = sum(mean_weight(n, total, workers) * m for n, m in zip(sizes, means, strict=True)) / workers
    assert abs(summed - values.mean()) <= 1e-12 * scale
    assert abs(averaged - values.mean()) <= 1e-12 * scale


GOLDEN = [
    [7, 1, 0, 6, 3, 5, 10, 8, 11, 2, 9, 4],
    [9, 3, 6, 5, 7, 0, 8, 4, 1, 11, 10, 2],
    [9, 11, 5, 7, 4, 10, 1, 0, 6, 8, 2, 3],
]
