"""Iterable datasets: each rank's own stream, used exactly once, with one end for all, and exact updates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import IterableDataset, get_worker_info

from lbbsp.torch import LoadBalancer, Settings
from tests.integrations.torch.test_variants import far
from tests.support.policies import FixedSizes, RandomSizes
from tests.support.rank_pool import RankPool
from tests.support.training import flat, make_dataset, make_net

X = 20


class Stream(IterableDataset[Any]):
    """A rank's samples by number, shared out over its loader workers; length None for ever."""

    def __init__(self, rank: int, length: int | None) -> None:
        self.rank, self.length = rank, length

    def __iter__(self) -> Iterator[Any]:
        features, classes, _ = make_dataset(200).tensors
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for k in itertools.count(first, step) if self.length is None else range(first, self.length, step):
            i = (50 * self.rank + k) % 200
            yield features[i], classes[i], i


def follow(
    rank: int, workers: int, lengths: list[int | None], loader_workers: int, drop_last: bool, steps: int
) -> dict[str, Any]:
    """Train on streams of these lengths, for so many steps at most."""
    model = DDP(make_net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = FixedSizes((9, 1, 4, 6)) if drop_last else RandomSizes(4)
    settings = Settings(min_gain=0, warm_up=0, time_limit_s=30)
    with LoadBalancer(model, global_batch_size=X, policy=policy, settings=settings) as balancer:
        loader = balancer.data_loader(Stream(rank, lengths[rank]), num_workers=loader_workers, drop_last=drop_last)
        seen, totals = [], []
        for features, classes, index in itertools.islice(loader, steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(features), classes).backward()
            optimizer.step()
            seen.append(index.tolist() if balancer.batch_size else [])
            totals.append(balancer.total_size)
    return {"seen": seen, "totals": totals, "parameters": flat(model.parameters())}


def check_updates(results: list[dict[str, Any]]) -> None:
    """One process on the same global batches."""
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    features, classes, _ = make_dataset(200).tensors
    for k in range(len(results[0]["seen"])):
        index = [i for r in results for i in r["seen"][k]]
        assert len(index) == results[0]["totals"][k]
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(features[index]), classes[index]).backward()
        optimizer.step()
    for result in results:
        assert far(result["parameters"], flat(net.parameters())) <= 1e-12
        assert len(result["seen"]) == len(results[0]["seen"])


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_streams_of_unequal_lengths_end_together(ranks: RankPool, loader_workers: int) -> None:
    lengths = [50, 7, 31, 44]
    results = ranks.run(follow, lengths, loader_workers, False, 10**6)
    for rank, result in enumerate(results):
        used = [i for step in result["seen"] for i in step]
        assert sorted(used) == [50 * rank + k for k in range(lengths[rank])]  # each sample once
    check_updates(results)


def test_an_endless_stream(ranks: RankPool) -> None:
    results = ranks.run(follow, [None] * 4, 2, False, 8)
    assert results[0]["totals"] == [X] * 8
    check_updates(results)


def test_drop_last_ends_with_the_first_stream_that_ends(ranks: RankPool) -> None:
    results = ranks.run(follow, [50, 50, 50, 20], 0, True, 10**6)
    assert results[0]["totals"] == [X] * 3  # 5 + 6 + 6 of the 20, and three are no batch of six
    check_updates(results)


def test_a_stream_without_a_sample(ranks: RankPool) -> None:
    for kind, value in ranks.outcomes(follow, [50, 0, 50, 50], 0, False, 10):
        assert kind == "failed"
        assert "the stream of rank(s) [1] has no sample" in value[1]
