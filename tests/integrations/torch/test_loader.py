"""The balanced loader gives what torch's DataLoader would give for the same indices, at every setting."""

from __future__ import annotations

import collections
import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from lbbsp.core.order import global_order
from lbbsp.integrations.torch.loader import _concatenate
from lbbsp.torch import LoadBalancer, Settings
from tests.support.policies import RandomSizes
from tests.support.rank_pool import RankPool

Pair = collections.namedtuple("Pair", ["image", "name"])


class Everything(Dataset[Any]):
    """Samples that hold each kind of value that default_collate knows."""

    def __len__(self) -> int:
        return 61

    def __getitem__(self, i: int) -> Any:
        return {
            "index": i,
            "tensor": torch.full((2, 3), float(i), dtype=torch.float64),
            "array": np.array([i, i + 1], dtype=np.int16),
            "float": i / 7,
            "text": f"sample {i}",
            "bytes": bytes([i]),
            "pair": Pair(torch.tensor(i), f"name {i}"),
            "list": [i, (f"x{i}", torch.tensor([i]))],
            "flag": i % 2 == 0,
        }


class InBatches(Everything):
    """Fetches a list of samples at once, and must not be asked for none."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        assert indices
        return [self[i] for i in indices]


class Ragged(Dataset[Any]):
    """Sequences of unequal length."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((1 + i % 9,), i)


def pad(samples: list[torch.Tensor]) -> torch.Tensor:
    """Pad to the longest of the batch: needs to see the whole batch."""
    return nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=-1)


class Seeds(Dataset[Any]):
    """What the loader workers' random generators give."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> tuple[int, float, int]:
        info = get_worker_info()
        return (info.id if info else -1), float(torch.rand(())), random.getrandbits(60)


class Breaks(Dataset[Any]):
    """One bad sample."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> int:
        if i == 17:
            raise ValueError("sample 17 cannot be read")
        return i


def same(a: Any, b: Any) -> bool:
    """Equal in type, structure and values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@pytest.mark.parametrize("cuts", [(1, 2), (5,), (1, 2, 3, 4, 5, 6, 7, 8, 9), (0, 3)])
def test_chunks_concatenate_to_the_collated_batch(cuts: tuple[int, ...]) -> None:
    samples = [Everything()[i] for i in range(10)]
    edges = [0, *cuts, 10]
    parts = [samples[a:b] for a, b in itertools.pairwise(edges) if b > a]
    assert same(_concatenate([default_collate(part) for part in parts]), default_collate(samples))


def iterate(rank: int, workers: int, kind: str, num_workers: int, options: dict[str, Any], epochs: int) -> Any:
    """This rank's batches, and those that a plain DataLoader gives for the same indices."""
    dataset: Dataset[Any] = {"all": Everything, "batches": InBatches, "ragged": Ragged, "seeds": Seeds}[kind]()
    n = len(dataset)  # type: ignore[arg-type]
    model = DDP(nn.Linear(1, 1))
    balancer = LoadBalancer(
        model,
        global_batch_size=13,
        policy=RandomSizes(3),
        settings=Settings(min_gain=0, warm_up=0, time_limit_s=30),
    )
    loader = balancer.data_loader(dataset, num_workers=num_workers, seed=5, **options)
    got, sizes = [], []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        assert len(loader) == -(-n // 13)
        for batch in loader:
            got.append(batch)
            sizes.append(balancer.batch_size)
            model(torch.ones(1, 1)).sum().backward()
    everyone = balancer._exchange.gather([float(s) for s in sizes])
    balancer.close()
    expected = []
    if kind != "seeds":
        for k in range(len(sizes)):
            epoch, within = divmod(k, -(-n // 13))
            order = global_order(n, seed=5, epoch=epoch)[within * 13 : within * 13 + 13]
            start = int(everyone[:rank, k].sum())
            indices = order[start : start + sizes[k]].tolist() or [int(order[0])]
            plain = DataLoader(dataset, batch_sampler=[indices], collate_fn=options.get("collate_fn"))
            expected.append(next(iter(plain)))
    return (
        all(same(a, b) for a, b in zip(got, expected, strict=False)),
        len(got),
        got if kind == "seeds" else None,
    )


@pytest.mark.parametrize("num_workers", [0, 3])
@pytest.mark.parametrize("kind", ["all", "batches"])
def test_batches_are_those_of_a_plain_loader(ranks: RankPool, kind: str, num_workers: int) -> None:
    for equal, count, _ in ranks.run(iterate, kind, num_workers, {}, 2):
        assert equal
        assert count == 10


@pytest.mark.parametrize("num_workers", [0, 2])
def test_collate_fn_sees_whole_batches(ranks: RankPool, num_workers: int) -> None:
    for equal, count, _ in ranks.run(iterate, "ragged", num_workers, {"collate_fn": pad}, 1):
        assert equal
        assert count == 4


def test_loader_workers_draw_different_numbers(ranks: RankPool) -> None:
    results = ranks.run(iterate, "seeds", 2, {}, 1)
    drawn = [float(v) for _, _, batches in results for b in batches for v in b[1]]
    ids = {int(w) for _, _, batches in results for b in batches for w in b[0]}
    assert ids == {0, 1}
    assert len(set(drawn)) == len(drawn)  # no two ranks or workers share a stream
    again = ranks.run(iterate, "seeds", 2, {}, 1)
    assert [b[1].tolist() for b in results[0][2][:1]] == [b[1].tolist() for b in again[0][2][:1]]


def break_down(rank: int, workers: int, num_workers: int) -> str:
    """A sample that cannot be read: the rank that has it says so."""
    balancer = LoadBalancer(DDP(nn.Linear(1, 1)), global_batch_size=40, settings=Settings(time_limit_s=20))
    loader = balancer.data_loader(Breaks(), num_workers=num_workers, shuffle=False)
    try:
        batch = next(iter(loader))
        return f"read {batch.tolist()}"
    except ValueError as error:
        return str(error)
    finally:
        balancer.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_in_a_sample_reaches_the_script(ranks: RankPool, num_workers: int) -> None:
    results = ranks.run(break_down, num_workers)
    assert "sample 17 cannot be read" in results[1]
    assert [results[i] for i in (0, 2, 3)] == [f"read {list(range(10 * i, 10 * i + 10))}" for i in (0, 2, 3)]


def leave_early(rank: int, workers: int, num_workers: int) -> list[int]:
    """Break out of an epoch, then run a whole one."""
    model = DDP(nn.Linear(1, 1))
    balancer = LoadBalancer(
        model,
        global_batch_size=10,
        policy=RandomSizes(1),
        settings=Settings(min_gain=0, warm_up=0, time_limit_s=30),
    )
    options: dict[str, Any] = {"num_workers": num_workers, "persistent_workers": True} if num_workers else {}
    loader = balancer.data_loader(Ragged(), collate_fn=pad, **options)
    seen: list[int] = []
    for epoch in range(3):
        loader.set_epoch(epoch)
        for k, batch in enumerate(loader):
            if epoch != 1:
                seen.extend(batch[:, 0].tolist())
            model(torch.ones(1, 1)).sum().backward()
            if epoch == 1 and k == 1:
                break
    balancer.close()
    return seen


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_can_be_left_early(ranks: RankPool, num_workers: int) -> None:
    seen = [i for part in ranks.run(leave_early, num_workers) for i in part]
    assert sorted(seen) == sorted([*range(50), *range(50)])
