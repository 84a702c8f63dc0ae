"""I4: the update equals the single-process update on the same global batch, whatever the allocation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lbbsp.core.order import global_order
from tests.support.rank_pool import RankPool
from tests.support.training import train_alone, train_balanced

TOLERANCE = 1e-12


def close(actual: Any, expected: Any) -> bool:
    """Relative to the largest entry, as gradients have entries near zero."""
    a, b = np.asarray(actual), np.asarray(expected)
    return a.shape == b.shape and bool(np.abs(a - b).max() <= TOLERANCE * max(1.0, np.abs(b).max()))


def compare(results: list[Any], n: int, x: int, epochs: int, **options: Any) -> None:
    """Every rank's run against one process, and the samples against the global order."""
    alone = train_alone(n, x, epochs, **options)
    active = [r for r in results if r is not None]
    for result in active:
        assert close(result["gradients"], alone["gradients"])
        assert close(result["parameters"], alone["parameters"])
        assert close(result["losses"], alone["losses"])
        assert result["parameters"] == active[0]["parameters"]  # ranks do not drift apart by a bit
    per_epoch = len(active[0]["seen"]) // epochs
    for k in range(len(active[0]["seen"])):
        epoch, within = divmod(k, per_epoch)
        order = global_order(n, seed=0, epoch=epoch)[within * x : (within + 1) * x].tolist()
        assert [i for result in active for i in result["seen"][k]] == order


@pytest.mark.parametrize(
    ("n", "x", "workers", "allocation"),
    [
        (105, 35, 3, (24, 8, 3)),
        (100, 37, 3, (30, 1, 6)),
        (97, 31, 4, (1, 1, 28, 1)),
        (64, 16, 2, (15, 1)),
        (50, 7, 1, (7,)),
        (90, 4, 4, (1, 1, 1, 1)),
    ],
)
def test_fixed_allocations(ranks: RankPool, n: int, x: int, workers: int, allocation: tuple[int, ...]) -> None:
    results = ranks.run(train_balanced, n, x, 2, allocation, {"workers": workers})
    compare(results, n, x, 2)
    assert results[0]["sizes"][1] == allocation[0]


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    workers=st.integers(1, 4),
    x=st.sampled_from([5, 13, 29, 64]),
    extra=st.integers(0, 90),
    seed=st.integers(0, 2**31),
    loader_workers=st.sampled_from([0, 0, 0, 2]),
)
def test_random_allocations(ranks: RankPool, workers: int, x: int, extra: int, seed: int, loader_workers: int) -> None:
    loader = {"num_workers": loader_workers}
    results = ranks.run(train_balanced, x + extra, x, 2, seed, {"workers": workers, "loader": loader})
    compare(results, x + extra, x, 2)
    assert results[0]["lag"] == (2 if loader_workers else 1)


@pytest.mark.parametrize("loader_workers", [0, 2, 8])
def test_every_number_of_loader_workers(ranks: RankPool, loader_workers: int) -> None:
    loader = {"num_workers": loader_workers, "persistent_workers": loader_workers == 2}
    results = ranks.run(train_balanced, 83, 20, 3, 7, {"workers": 2, "loader": loader})
    compare(results, 83, 20, 3)
    assert results[0]["lag"] <= 2


def test_several_buckets(ranks: RankPool) -> None:
    results = ranks.run(train_balanced, 60, 17, 2, 3, {"workers": 3, "bucket_cap_mb": 0.001})
    compare(results, 60, 17, 2)


def test_idle_ranks_weigh_nothing(ranks: RankPool) -> None:
    results = ranks.run(train_balanced, 20, 3, 2, (2, 0, 1, 0), {"min_size": 0})
    compare(results, 20, 3, 2)


def test_drop_last(ranks: RankPool) -> None:
    results = ranks.run(train_balanced, 50, 20, 2, 1, {"workers": 3, "drop_last": True})
    compare(results, 50, 20, 2, drop_last=True)


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_accumulation_over_unequal_batches(ranks: RankPool, loader_workers: int) -> None:
    """Gradients of several batches, each of another split and the last one short, accumulate exactly."""
    options = {"workers": 3, "accumulate": 3, "loader": {"num_workers": loader_workers}}
    results = ranks.run(train_balanced, 51, 20, 3, 5, options)
    compare(results, 51, 20, 3, accumulate=3)


def test_around_a_hook_of_the_users(ranks: RankPool) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    results = ranks.run(
        train_balanced,
        70,
        23,
        2,
        11,
        {"workers": 4, "comm_hook": (None, allreduce_hook), "bucket_cap_mb": 0.001},
    )
    compare(results, 70, 23, 2)
