"""Bad input is a clear error on every rank, before any work, wherever it was given."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import IterableDataset, TensorDataset

import lbbsp
from lbbsp.torch import Limits, LoadBalancer, Settings
from tests.support.policies import FixedSizes
from tests.support.rank_pool import RankPool
from tests.support.sync_batch_norm import on_the_cpu

Case = tuple[Callable[[int], dict[str, Any]], Callable[[int], dict[str, Any]], str]


class Stream(IterableDataset[int]):
    """A dataset without a length."""

    def __iter__(self) -> Any:
        return iter(range(10))


def data(n: int) -> TensorDataset:
    """n samples."""
    return TensorDataset(torch.zeros(n, 2))


CASES: dict[str, Case] = {
    "x_below_w": (lambda _: {"global_batch_size": 3}, lambda _: {}, "global batch 3 < 4"),
    "x_zero": (lambda _: {"global_batch_size": 0}, lambda _: {}, "global_batch_size=0"),
    "x_float": (lambda _: {"global_batch_size": 32.0}, lambda _: {}, "global_batch_size=32.0"),
    "x_differs": (
        lambda r: {"global_batch_size": 32 + r},
        lambda _: {},
        "global_batch_size differs between ranks",
    ),
    "granularity": (
        lambda _: {"limits": Limits(granularity=5)},
        lambda _: {},
        "32 is not divisible by the granularity 5",
    ),
    "granularity_zero": (lambda _: {"limits": Limits(granularity=0)}, lambda _: {}, "granularity=0"),
    "granularity_differs": (
        lambda r: {"limits": Limits(granularity=4 if r == 1 else 2)},
        lambda _: {},
        "granularity differs between ranks",
    ),
    "caps_too_low": (
        lambda r: {"limits": Limits(max_size=r + 1)},
        lambda _: {},
        "32 > 10, the sum of the upper bounds",
    ),
    "floors_too_high": (
        lambda _: {"limits": Limits(min_size=9)},
        lambda _: {},
        "32 < 36, the sum of the lower bounds",
    ),
    "bounds_crossed": (
        lambda _: {"limits": Limits(min_size=9, max_size=8)},
        lambda _: {},
        "max_size=8 < min_size=9",
    ),
    "bounds_negative": (lambda _: {"limits": Limits(min_size=-1)}, lambda _: {}, "lo=-1"),
    "on_one_rank_only": (
        lambda r: {"limits": Limits(min_size=9, max_size=8)} if r == 2 else {},
        lambda _: {},
        "max_size=8 < min_size=9",
    ),
    "policy_unknown": (lambda _: {"policy": "fastest"}, lambda _: {}, "policy='fastest'"),
    "policy_no_policy": (lambda _: {"policy": 7}, lambda _: {}, "policy=7 lacks"),
    "policy_differs": (
        lambda r: {"policy": "equal" if r else "auto"},
        lambda _: {},
        "policy differs between ranks",
    ),
    "settings_differ": (
        lambda r: {"settings": Settings(warm_up=r, time_limit_s=20)},
        lambda _: {},
        "settings differs between ranks",
    ),
    "batch_size": (lambda _: {}, lambda _: {"batch_size": 8}, "batch_size=...): the allocation sets"),
    "sampler": (lambda _: {}, lambda _: {"sampler": range(8), "shuffle": True}, "no effect with sampler"),
    "batch_sampler": (lambda _: {}, lambda _: {"batch_sampler": iter([[1]])}, "needs __iter__ and __len__"),
    "both_samplers": (lambda _: {}, lambda _: {"sampler": [1], "batch_sampler": [[1]]}, "give one of them"),
    "batch_sampler_drops": (
        lambda _: {},
        lambda _: {"batch_sampler": [[1]], "drop_last": True},
        "drop_last=True has no effect",
    ),
    "unknown_option": (lambda _: {}, lambda _: {"num_wokers": 8}, "no option num_wokers"),
    "no_effect_prefetch": (
        lambda _: {},
        lambda _: {"prefetch_factor": 4},
        "prefetch_factor: no effect with num_workers=0",
    ),
    "no_effect_persistent": (
        lambda _: {},
        lambda _: {"persistent_workers": True},
        "persistent_workers: no effect",
    ),
    "no_effect_init": (lambda _: {}, lambda _: {"worker_init_fn": print}, "worker_init_fn: no effect"),
    "num_workers_negative": (lambda _: {}, lambda _: {"num_workers": -1}, "num_workers=-1"),
    "prefetch_zero": (lambda _: {}, lambda _: {"num_workers": 2, "prefetch_factor": 0}, "prefetch_factor=0"),
    "seed_negative": (lambda _: {}, lambda _: {"seed": -5}, "seed=-5"),
    "seed_differs": (lambda _: {}, lambda r: {"seed": r}, "seed differs between ranks"),
    "dataset_short": (
        lambda _: {},
        lambda _: {"dataset": data(31)},
        "31 samples, fewer than one global batch of 32",
    ),
    "dataset_empty": (lambda _: {}, lambda _: {"dataset": data(0)}, "the dataset is empty"),
    "dataset_differs": (lambda _: {}, lambda r: {"dataset": data(40 + r)}, "length differs between ranks"),
    "stream_shuffled": (
        lambda _: {},
        lambda _: {"dataset": Stream(), "shuffle": True},
        "shuffle: no effect on an iter",
    ),
    "no_dataset": (lambda _: {}, lambda _: {"dataset": iter([1])}, "needs a map-style dataset"),
    "dataset_on_one_rank": (
        lambda _: {},
        lambda r: {"dataset": data(0 if r == 3 else 40)},
        "the dataset is empty",
    ),
}


def attempt(rank: int, workers: int, name: str) -> None:
    """Make a balancer and a loader as the case says."""
    balancer_options, loader_options, _ = CASES[name]
    model = DDP(nn.Linear(2, 2))
    options = {"global_batch_size": 32, "settings": Settings(time_limit_s=20), **balancer_options(rank)}
    balancer = LoadBalancer(model, **options)
    try:
        balancer.data_loader(**{"dataset": data(40), **loader_options(rank)})
    finally:
        balancer.close()


@pytest.mark.parametrize("name", CASES)
def test_every_rank_gets_the_error(ranks: RankPool, name: str) -> None:
    outcomes = ranks.outcomes(attempt, name)
    for kind, value in outcomes:
        assert kind == "failed"
        assert value[0] in {"ConfigurationError", "InfeasibleBoundsError"}, value[2]
        assert CASES[name][2] in value[1]
    # Nothing is left half made: the same ranks can go on.
    assert ranks.run(echo) == [0, 1, 2, 3]


def echo(rank: int, workers: int) -> int:
    """A collective that works."""
    import torch.distributed as dist

    dist.barrier()
    return rank


def no_hook(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Never called."""
    raise NotImplementedError


def twice(rank: int, workers: int, how: str) -> None:
    """Two balancers, or a hook already there."""
    model = DDP(nn.Linear(2, 2))
    if how == "hook":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model.register_comm_hook(None, fp16_compress_hook)
    elif how == "balancer":
        LoadBalancer(model, global_batch_size=8).close()
    LoadBalancer(
        nn.Linear(2, 2) if how == "no_ddp" else model,
        global_batch_size=8,
        comm_hook=(None, no_hook),
    )


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("balancer", "already has a LoadBalancer"),
        ("hook", "pass it as LoadBalancer(comm_hook="),
        ("no_ddp", "comm_hook has no effect on Linear"),
    ],
)
def test_a_model_takes_one_balancer_and_one_hook(ranks: RankPool, how: str, message: str) -> None:
    for kind, value in ranks.outcomes(twice, how):
        assert kind == "failed"
        assert value[0] == "ConfigurationError"
        assert message in value[1]


def misuse(rank: int, workers: int, how: str) -> None:
    """Wrong calls in the loop."""
    balancer = LoadBalancer(None if "own" in how else DDP(nn.Linear(2, 2)), global_batch_size=8)
    try:
        if how == "state before loader":
            balancer.state_dict()
        loader = balancer.data_loader(data(40))
        if how == "mean before batch":
            balancer.mean(1.0)
        if how == "negative epoch":
            loader.set_epoch(-1)
        if how == "two loops":
            other = balancer.data_loader(data(40))
            for _ in loader:
                next(iter(other))
        for _ in loader:
            if how == "report with ddp":
                balancer.report()
            if how == "own twice":
                balancer.report()
                balancer.report()
        balancer.close()
        next(iter(loader))
    finally:
        balancer.close()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("state before loader", "no data loader yet"),
        ("mean before batch", "mean() before the first batch"),
        ("negative epoch", "epoch=-1"),
        ("two loops", "another loader of this balancer"),
        ("report with ddp", "report() has no effect with DistributedDataParallel"),
        ("own twice", "called twice"),
        ("own without report", "balancer.report() was not called"),
        ("closed", "the balancer is closed"),
    ],
)
def test_wrong_calls(ranks: RankPool, how: str, message: str) -> None:
    for kind, value in ranks.outcomes(misuse, how):
        assert kind == "failed"
        assert value[0] in {"ConfigurationError", "ExchangeError"}, value[2]
        assert message in value[1]


def test_without_a_process_group() -> None:
    assert not dist.is_initialized()
    with pytest.raises(lbbsp.ConfigurationError, match="init_process_group"):
        LoadBalancer(nn.Linear(2, 2), global_batch_size=8)


@pytest.mark.parametrize(
    "options",
    [
        {"time_limit_s": 0},
        {"time_limit_s": float("nan")},
        {"min_gain": -0.1},
        {"warm_up": -1},
        {"move_cost_s": -1.0},
    ],
)
def test_settings(options: dict[str, Any]) -> None:
    with pytest.raises(lbbsp.ConfigurationError, match=next(iter(options))):
        Settings(**options)


def normalised(rank: int, workers: int, synchronised: bool, min_size: int | None, n: int, x: int) -> Any:
    """The warning and the least size for a network that normalises over the batch."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with warnings.catch_warnings(record=True) as caught, on_the_cpu():
        warnings.simplefilter("always")
        if synchronised:
            net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        balancer = LoadBalancer(DDP(net), global_batch_size=x, limits=Limits(min_size=min_size))
        try:
            balancer.data_loader(data(n))
        finally:
            balancer.close()
    return [str(w.message) for w in caught], balancer._problem.bounds.lo.tolist()


@pytest.mark.parametrize(
    ("min_size", "x", "least", "warning"),
    [
        (None, 8, 2, "(module.1), which cannot be trained on a single sample: the least size is set to 2"),
        (2, 8, 2, None),
        (1, 8, 1, "but the least size is 1"),
        (None, 6, 1, "but the least size is 1"),
    ],
)
def test_batch_norm_raises_the_least_size(
    ranks: RankPool, min_size: int | None, x: int, least: int, warning: str | None
) -> None:
    results = ranks.run(normalised, False, min_size, 32, x)
    assert [lo for _, lo in results] == [[least] * 4] * 4
    assert [len(texts) for texts, _ in results] == [1 if warning else 0, 0, 0, 0]
    if warning:
        assert warning in results[0][0][0]


@pytest.mark.parametrize(
    ("min_size", "n", "message"),
    [(0, 32, "min_size=0 with SyncBatchNorm"), (1, 35, "3 sample(s) for 4 ranks")],
)
def test_no_idle_ranks_under_sync_batch_norm(ranks: RankPool, min_size: int, n: int, message: str) -> None:
    for kind, value in ranks.outcomes(normalised, True, min_size, n, 8):
        assert kind == "failed"
        assert message in value[1]


def outside_the_loop(rank: int, workers: int) -> float:
    """Train balanced, then on something else with the same model."""
    model = DDP(nn.Linear(1, 1, bias=False))
    balancer = LoadBalancer(
        model, global_batch_size=8, policy=FixedSizes((5, 1, 1, 1)), settings=Settings(min_gain=0, warm_up=0)
    )
    for _ in balancer.data_loader(data(32)):
        model(torch.ones(1, 1)).sum().backward()
    model.zero_grad()
    model(torch.full((1, 1), float(rank))).sum().backward()
    assert model.module.weight.grad is not None
    balancer.close()
    return float(model.module.weight.grad)


def test_outside_the_loop_gradients_are_averaged_as_in_plain_ddp(ranks: RankPool) -> None:
    assert ranks.run(outside_the_loop) == [1.5] * 4
