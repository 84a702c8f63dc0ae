"""Samplers of the script's own set the global order, the same on all ranks and after a resume."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import RandomSampler, WeightedRandomSampler

from lbbsp.torch import LoadBalancer, Settings
from tests.support.policies import RandomSizes
from tests.support.rank_pool import RankPool
from tests.support.training import make_dataset, make_net

N, X = 50, 12


class Bucketed:
    """Global batches of unequal sizes, in another order each epoch."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the loader."""
        self.epoch = epoch

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[list[int]]:
        starts = [0, 12, 17, 18, 30, 41, 50]
        for b in torch.randperm(6).tolist():
            yield [(i + self.epoch) % N for i in range(starts[b], starts[b + 1])]


def make(kind: str, rank: int) -> dict[str, Any]:
    """The loader's options."""
    if kind == "weighted":
        return {"sampler": WeightedRandomSampler((torch.arange(N) + 1.0).tolist(), 40)}
    if kind == "bucketed":
        return {"batch_sampler": Bucketed()}
    if kind == "own generator":  # set to the same on all ranks
        return {"sampler": RandomSampler(range(N), generator=torch.Generator().manual_seed(5))}
    if kind == "ranks differ":
        return {"sampler": RandomSampler(range(N), generator=torch.Generator().manual_seed(rank))}
    if kind == "too large":
        return {"batch_sampler": [list(range(X + 1))]}
    return {"sampler": [0, N]}  # beyond the dataset


def use(rank: int, workers: int, kind: str, stop: int | None, saved: str | None) -> tuple[Any, str, list[int]]:
    """The samples by epoch and iteration, a checkpoint, and totals."""
    model = DDP(make_net())
    torch.manual_seed(rank)  # ranks' own random numbers differ, as they do in training
    with LoadBalancer(
        model, global_batch_size=X, policy=RandomSizes(2), settings=Settings(min_gain=0, warm_up=0)
    ) as balancer:
        loader = balancer.data_loader(make_dataset(N), num_workers=2 if kind == "bucketed" else 0, **make(kind, rank))
        if saved:
            balancer.load_state_dict(json.loads(saved))
        seen, totals, steps = [], [], 0
        for epoch in range(loader.epoch, 2):
            loader.set_epoch(epoch)
            for features, classes, index in loader:
                nn.functional.cross_entropy(model(features), classes).backward()
                seen.append((epoch, index.tolist() if balancer.batch_size else []))
                totals.append(balancer.total_size)
                steps += 1
                if steps == stop:
                    return seen, json.dumps(balancer.state_dict()), totals
        return seen, "", totals


@pytest.mark.parametrize("kind", ["weighted", "bucketed", "own generator"])
def test_the_order_is_the_samplers(ranks: RankPool, kind: str) -> None:
    whole = ranks.run(use, kind, None, None)
    steps = [[i for r in whole for i in r[0][k][1]] for k in range(len(whole[0][0]))]
    assert [len(step) for step in steps] == whole[0][2]
    if kind == "bucketed":
        starts = {0: 12, 12: 5, 17: 1, 18: 12, 30: 11, 41: 9}
        for (epoch, _), step in zip(whole[0][0], steps, strict=True):
            assert step == [(i + epoch) % N for i in range((step[0] - epoch) % N, (step[0] - epoch) % N + len(step))]
            assert starts[(step[0] - epoch) % N] == len(step)
        assert sorted(i for step in steps[:6] for i in step) == list(range(N))
        assert whole[0][2][:6] != whole[0][2][6:]
    elif kind == "weighted":
        assert [len(step) for step in steps] == [12, 12, 12, 4] * 2
        assert len({i for step in steps for i in step}) < 40  # drawn with replacement
    else:
        assert sorted(i for step in steps[:5] for i in step) == list(range(N))
        return  # a generator that a sampler keeps cannot be set back
    begun = ranks.run(use, kind, 2, None)
    ended = ranks.run(use, kind, None, begun[0][1])
    resumed = [[i for r in run for i in r[0][k][1]] for run in (begun, ended) for k in range(len(run[0][0]))]
    assert resumed == steps


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ranks differ", "the sampler's order (checksum) differs between ranks"),
        ("too large", "a batch of 13: it yields global batches of 1 to 12 samples"),
        ("beyond", "fewer than one global batch"),
    ],
)
def test_wrong_samplers(ranks: RankPool, kind: str, message: str) -> None:
    for outcome, value in ranks.outcomes(use, kind, None, None):
        assert outcome == "failed"
        assert message in value[1]
