"""Micro-batches: exact at any allocation, over a DataLoader of the user's own; and batches beyond a cap."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from lbbsp.errors import ConfigurationError
from lbbsp.integrations.torch.microbatch import pieces_of, sliced
from lbbsp.torch import Limits, LoadBalancer, Memory, Settings
from tests.integrations.torch.test_parity import compare
from tests.support.policies import policy_of
from tests.support.rank_pool import RankPool
from tests.support.training import flat, make_dataset, make_net

M = 4


def train(rank: int, workers: int, n: int, x: int, allocation: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """Two epochs over the first ``options["workers"]`` ranks; by micro-batches of M, or by split batches."""
    use = options.get("workers", workers)
    group = dist.new_group(list(range(use)))
    if rank >= use:
        return None
    model = DDP(make_net(), process_group=group)
    cap = options.get("cap")
    limits = Limits(min_size=options.get("min_size", 1), granularity=M)
    if cap:
        limits = Limits(max_size=cap, memory=Memory(micro_batches=True))
    balancer = LoadBalancer(
        model,
        global_batch_size=x,
        policy=policy_of(allocation),
        limits=limits,
        settings=Settings(min_gain=0, warm_up=0, time_limit_s=30),
    )
    data, drop_last = make_dataset(n), options.get("drop_last", False)
    if cap:
        loader: Any = balancer.data_loader(data, drop_last=drop_last)
    else:
        sampler = balancer.micro_batch_sampler(data, micro_batch_size=M, drop_last=drop_last)
        own: DataLoader[Any] = DataLoader(data, batch_sampler=sampler, num_workers=options.get("num_workers", 0))
        loader = balancer.updates(own)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    gradients, losses, seen, sizes, shapes = [], [], [], [], []
    for epoch in range(2):
        loader.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            loss_sum, indices = 0.0, []
            for features, classes, index in balancer.micro_batches(batch) if cap else batch:
                loss = nn.functional.cross_entropy(model(features), classes)
                loss.backward()
                loss_sum += loss.item() * len(index)
                indices += index.tolist()
                shapes.append(len(index))
            gradients.append(flat(p.grad for p in model.parameters()))
            optimizer.step()
            losses.append(balancer.mean(loss_sum / len(indices)))
            sizes.append(balancer.batch_size)
            seen.append(indices if balancer.batch_size else [])
    assert model.require_backward_grad_sync
    balancer.close()
    return {
        "gradients": gradients,
        "parameters": flat(model.parameters()),
        "losses": losses,
        "seen": seen,
        "sizes": sizes,
        "shapes": shapes,
        "lag": balancer._loop.runtime.lag,
    }


@pytest.mark.parametrize(
    ("n", "x", "allocation", "options"),
    [
        (96, 32, (24, 8), {"workers": 2, "drop_last": True}),
        (110, 48, (36, 4, 8), {"workers": 3}),
        (105, 40, (4, 4, 28, 4), {"workers": 4}),
        (90, 24, (12, 0, 12, 0), {"workers": 4, "min_size": 0}),
        (200, 48, 7, {"workers": 3, "num_workers": 1}),
    ],
)
def test_a_dataloader_of_the_users_own(
    ranks: RankPool, n: int, x: int, allocation: Any, options: dict[str, Any]
) -> None:
    results = ranks.run(train, n, x, allocation, options)
    drop_last = {"drop_last": True} if "drop_last" in options else {}
    compare(results, n, x, 2, **drop_last)
    active = [r for r in results if r is not None]
    short = {n % M, 0} if not drop_last else set()
    for result in active:
        assert set(result["shapes"]) - short == {M}, "one shape, but for the epoch's tail"
        assert result["lag"] == (3 if "num_workers" in options else 1)
    if not isinstance(allocation, int):
        assert [r["sizes"][1] for r in active] == list(allocation)
        assert active[0]["shapes"].count(M) >= allocation[0] // M


@pytest.mark.parametrize(
    ("allocation", "cap", "workers"), [((30, 3, 4), 7, 3), ((1, 36), 12, 2), ((34, 1, 1, 1), 40, 4)]
)
def test_batches_beyond_a_cap_come_in_pieces(
    ranks: RankPool, allocation: tuple[int, ...], cap: int, workers: int
) -> None:
    results = ranks.run(train, 100, 37, allocation, {"workers": workers, "cap": cap})
    compare(results, 100, 37, 2)
    active = [r for r in results if r is not None]
    assert [r["sizes"][1] for r in active] == list(allocation)
    assert max(shape for r in active for shape in r["shapes"]) <= cap


def refuse(rank: int, workers: int, what: str) -> None:
    """Use it wrongly."""
    balancer = LoadBalancer(DDP(make_net()), global_batch_size=32, limits=Limits(granularity=M))
    data = make_dataset(64)
    try:
        if what == "granularity":
            balancer.micro_batch_sampler(data, micro_batch_size=8)
        elif what == "other sampler":
            balancer.updates(DataLoader(data, batch_size=M))
        elif what == "outside":
            next(balancer.micro_batches(torch.ones(3)))
        else:
            sampler = balancer.micro_batch_sampler(data, micro_batch_size=M)
            list(DataLoader(data, batch_sampler=sampler))
    finally:
        balancer.close()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("granularity", "micro_batch_size=8: must be an integer that divides the granularity 4"),
        ("other sampler", "with batch_sampler=BatchSampler"),
        ("outside", "no batch is in work"),
        ("directly", "iterate over balancer.updates(loader)"),
    ],
)
def test_wrong_use_says_what_to_do(ranks: RankPool, what: str, message: str) -> None:
    for kind, value in ranks.outcomes(refuse, what):
        assert (kind, value[0]) == ("failed", "ConfigurationError")
        assert message in value[1]


def test_pieces_are_equal_and_few() -> None:
    assert pieces_of(10, None) == [10]
    for size in range(1, 40):
        for cap in range(1, 45):
            pieces = pieces_of(size, cap)
            assert sum(pieces) == size
            assert max(pieces) <= cap
            assert max(pieces) - min(pieces) <= 1
            assert len(pieces) == -(-size // cap)


Pair = namedtuple("Pair", "a b")


def test_batches_of_any_nesting_are_sliced() -> None:
    x = torch.arange(6).reshape(3, 2)
    assert sliced(x, 1, 3, 3).tolist() == [[2, 3], [4, 5]]
    nested = {"x": [x, x], "names": ["a", "b", "c"], "pair": Pair(x, (x,))}
    part = sliced(nested, 0, 1, 3)
    assert [t.tolist() for t in part["x"]] == [[[0, 1]]] * 2
    assert part["names"] == ["a"]
    assert isinstance(part["pair"], Pair)
    assert part["pair"].b[0].tolist() == [[0, 1]]
    for bad in (torch.tensor(1.0), torch.ones(4), "abc", 3):
        with pytest.raises(ConfigurationError, match="cannot be split into 3 samples"):
            sliced([bad, x], 0, 1, 3)
