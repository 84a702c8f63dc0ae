"""Small float64 training runs, balanced over ranks and alone in one process, to compare to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import TensorDataset

from lbbsp.core.order import global_order
from lbbsp.torch import Limits, LoadBalancer, Settings
from tests.support.policies import policy_of

DTYPE = torch.float64


def make_dataset(n: int, seed: int = 0) -> TensorDataset:
    """Features, classes and the index of each sample."""
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 12, generator=g, dtype=DTYPE)
    return TensorDataset(features, torch.randint(0, 4, (n,), generator=g), torch.arange(n))


def make_net(seed: int = 0) -> nn.Module:
    """A small network, equal for equal seeds."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 33), nn.Tanh(), nn.Linear(33, 17), nn.GELU(), nn.Linear(17, 4)).to(DTYPE)


def flat(values: Any) -> list[float]:
    """All tensors as one list."""
    out: list[float] = []
    for value in values:
        out.extend(value.detach().reshape(-1).tolist())
    return out


def train_alone(
    n: int, x: int, epochs: int, *, accumulate: int = 1, drop_last: bool = False, seed: int = 0
) -> dict[str, Any]:
    """One process on the full batch: the reference."""
    net, data = make_net(), make_dataset(n)
    features, classes, _ = data.tensors
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    gradients, losses = [], []
    count = 0
    for epoch in range(epochs):
        order = torch.from_numpy(global_order(n, seed=seed, epoch=epoch))
        for start in range(0, n, x):
            index = order[start : start + x]
            if drop_last and len(index) < x:
                continue
            loss = nn.functional.cross_entropy(net(features[index]), classes[index])
            loss.backward()
            losses.append(loss.item())
            count += 1
            if count % accumulate:
                continue
            gradients.append(flat(p.grad for p in net.parameters()))
            optimizer.step()
            optimizer.zero_grad()
    return {"gradients": gradients, "parameters": flat(net.parameters()), "losses": losses}


def train_balanced(
    rank: int,
    workers: int,
    n: int,
    x: int,
    epochs: int,
    allocation: Sequence[int] | int,
    options: dict[str, Any],
) -> dict[str, Any] | None:
    """The same over the first ``options["workers"]`` ranks, with a given or random allocation."""
    use = options.get("workers", workers)
    group = dist.new_group(list(range(use)))
    if rank >= use:
        return None
    accumulate = options.get("accumulate", 1)
    model = DDP(make_net(), process_group=group, bucket_cap_mb=options.get("bucket_cap_mb", 25))
    balancer = LoadBalancer(
        model,
        global_batch_size=x,
        policy=policy_of(allocation),
        limits=Limits(min_size=options.get("min_size", 1)),
        comm_hook=options.get("comm_hook"),
        settings=Settings(min_gain=0.0, warm_up=0, time_limit_s=30),
    )
    loader = balancer.data_loader(
        make_dataset(n), drop_last=options.get("drop_last", False), **options.get("loader", {})
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    gradients, losses, seen, sizes = [], [], [], []
    count = 0
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for features, classes, index in loader:
            assert len(features) == max(balancer.batch_size, 1)
            count += 1
            sync = count % accumulate == 0
            model.require_backward_grad_sync = sync
            loss = nn.functional.cross_entropy(model(features), classes)
            loss.backward()
            losses.append(balancer.mean(loss.item()))
            seen.append(index.tolist() if balancer.batch_size else [])
            sizes.append(balancer.batch_size)
            if sync:
                gradients.append(flat(p.grad for p in model.parameters()))
                optimizer.step()
                optimizer.zero_grad()
    balancer.close()
    return {
        "gradients": gradients,
        "parameters": flat(model.parameters()),
        "losses": losses,
        "seen": seen,
        "sizes": sizes,
        "lag": balancer._loop.runtime.lag,
    }
