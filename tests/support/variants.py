"""What real training scripts do, each as a variant of one loop, balanced on ranks or alone on the full batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import TensorDataset

from lbbsp.core.order import global_order
from lbbsp.torch import LoadBalancer, Settings
from tests.support.policies import RandomSizes
from tests.support.sync_batch_norm import on_the_cpu
from tests.support.training import flat

N, X, EPOCHS, TOKENS = 61, 23, 2, 50


def make_data() -> TensorDataset:
    """Features, token labels of which few samples have all and most have one valid, and indices."""
    g = torch.Generator().manual_seed(1)
    features = torch.randn(N, 6, generator=g, dtype=torch.float64)
    labels = torch.randint(0, 5, (N, TOKENS), generator=g)
    labels[torch.arange(N) % 9 != 0, 1:] = -100
    labels[torch.arange(N) % 3 == 1] = -100
    return TensorDataset(features, labels, torch.arange(N))


class Net(nn.Module):
    """A trunk and a token head; the rest is the variant's."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        norm: Callable[[int], nn.Module] = nn.BatchNorm1d if "norm" in kind else nn.LayerNorm
        self.trunk = nn.Sequential(nn.Linear(6, 8), norm(8), nn.ReLU(inplace=True), nn.Linear(8, 8))
        self.expert = nn.Linear(8, 8)
        self.never = nn.Linear(2, 2)
        self.back = nn.Linear(8, 8)
        self.head = nn.Linear(8, TOKENS * 5)
        if kind == "tied":
            self.back.weight = self.expert.weight
        if kind == "frozen":
            self.expert.requires_grad_(False)
        if kind != "unused":
            self.never.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.trunk(x)
        if self.kind == "unused":  # only samples of one sort use the expert: some ranks have none
            chosen = x[:, 0] > 1.2
            if chosen.any():
                h = h + chosen[:, None] * self.expert(h)
        else:
            h = torch.tanh(self.expert(h))
        return torch.unflatten(self.head(self.back(h)), 1, (TOKENS, 5))


def valid(batch: list[Tensor]) -> Tensor:
    """Valid tokens of a batch."""
    return (batch[1] != -100).sum()


def token_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean over valid tokens: NaN where there is none."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def sample_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean over samples."""
    return scores.square().mean() + scores[:, 0, 0].sin().mean()


@dataclass
class Run:
    """One side's run."""

    kind: str
    gradients: list[list[float]] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    net: Any = None


def _step(run: Run, model: nn.Module, optimizer: Any, scaler: Any, batch: Any, k: int, spoil: bool) -> Tensor:
    features, labels, _ = batch
    kind = run.kind
    if kind == "tokens":
        loss = token_loss(model(features), labels)
    elif kind == "two_passes":
        loss = sample_loss(model(features), labels)
        (0.5 * loss).backward()
        loss = model(features).cos().mean()
    else:
        loss = sample_loss(model(features), labels)
    if kind == "scaler":
        if spoil:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
    else:
        loss.backward()
    if kind == "clip":
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    parameters = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
    run.gradients.append([] if kind == "scaler" and k % 4 == 2 else flat(parameters))
    if kind == "scaler":
        scaler.step(optimizer)
        scaler.update()
        run.scales.append(scaler.get_scale())
    else:
        optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _make(kind: str) -> tuple[Run, nn.Module, Any, Any]:
    torch.manual_seed(0)
    net = Net(kind).double()
    optimizer = torch.optim.SGD((p for p in net.parameters() if p.requires_grad), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2) if kind == "scaler" else None
    return Run(kind, net=net), net, optimizer, scaler


def alone(kind: str) -> Run:
    """One process, the full batches."""
    run, net, optimizer, scaler = _make(kind)
    data, k = make_data(), 0
    for epoch in range(EPOCHS):
        order = torch.from_numpy(global_order(N, seed=0, epoch=epoch))
        for start in range(0, N, X):
            batch = [t[order[start : start + X]] for t in data.tensors]
            run.losses.append(_step(run, net, optimizer, scaler, batch, k, spoil=k % 4 == 2).item())
            k += 1
    return run


@contextlib.contextmanager
def _surroundings(kind: str) -> Iterator[None]:
    with on_the_cpu() if kind == "sync_norm" else contextlib.nullcontext():
        yield


def balanced(rank: int, workers: int, kind: str) -> dict[str, Any]:
    """All ranks, an allocation that changes at random."""
    run, net, optimizer, scaler = _make(kind)
    if kind == "sync_norm":
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        optimizer = torch.optim.SGD((p for p in net.parameters() if p.requires_grad), lr=0.1, momentum=0.9)
    settings = Settings(min_gain=0.0, warm_up=0, time_limit_s=30)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_surroundings(kind))
        ddp = DDP(net, find_unused_parameters=kind == "unused", static_graph=kind == "static", bucket_cap_mb=1e-3)
        balancer = LoadBalancer(ddp, global_batch_size=X, policy=RandomSizes(3), settings=settings)
        stack.enter_context(balancer)
        loader = balancer.data_loader(make_data(), weight=valid if kind == "tokens" else None)
        k, seen, reported = 0, [], []
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            for batch in loader:
                loss = _step(run, ddp, optimizer, scaler, batch, k, spoil=k % 4 == 2 and rank == 1)
                run.losses.append(balancer.mean(loss.item()))
                seen.append(balancer.batch_size)
                reported.append(balancer._loop.step.reported if balancer._loop.step else False)
                k += 1
    return {
        "gradients": run.gradients,
        "losses": run.losses,
        "scales": run.scales,
        "parameters": flat(net.parameters()),
        "buffers": flat(b.double() for b in net.buffers()),
        "sizes": seen,
        "reported": reported,
    }
