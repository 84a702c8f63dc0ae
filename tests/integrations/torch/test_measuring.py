"""Compute times exclude the wait for others; metrics are weighted; the run is recorded."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from lbbsp.integrations.torch.timing import CudaStopwatch, stopwatch_for
from lbbsp.telemetry import read_run
from lbbsp.torch import Limits, LoadBalancer, Settings
from tests.support.policies import FixedSizes
from tests.support.rank_pool import RankPool
from tests.support.training import flat, make_dataset, make_net, train_alone

SLOW_S = 0.08


def run(rank: int, workers: int, where: str, folder: str | None, observe: bool = False) -> list[float]:
    """Rank 1 is slow, in reading data, in its forward pass or in between; the compute times of this rank."""
    net = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4) if where == "buffers" else nn.Identity()).double()
    model = DDP(net)
    balancer = LoadBalancer(
        model,
        global_batch_size=40,
        telemetry=folder,
        limits=Limits(min_size=2),
        settings=Settings(observe_only=observe, time_limit_s=30),
    )
    dataset = make_dataset(200)
    if where == "data" and rank == 1:
        fetch = type(dataset).__getitem__

        class Slow(type(dataset)):  # type: ignore[misc]
            def __getitem__(self, i: int) -> Any:
                time.sleep(SLOW_S / 10)
                return fetch(self, i)  # type: ignore[no-untyped-call]

        dataset.__class__ = Slow
    loader = balancer.data_loader(dataset)
    times = []
    for features, classes, _ in loader:
        if where == "mean":
            balancer.mean(1.0)
        if rank == 1 and where != "data":
            time.sleep(SLOW_S * len(features) / 10)
        loss = nn.functional.cross_entropy(model(features), classes)
        if where == "mean":
            balancer.mean(loss.detach())
        loss.backward()
        assert balancer._loop.step is not None
        times.append(balancer._loop.step.compute_s)
    balancer.close()
    return times


@pytest.mark.parametrize("where", ["data", "forward", "buffers", "mean"])
def test_compute_time_is_this_ranks_own(ranks: RankPool, where: str) -> None:
    """With all sizes left equal, rank 1's 80 ms show in rank 1's times and in nobody else's."""
    results = ranks.run(run, where, None, True)
    assert min(results[1]) >= SLOW_S * 0.9
    for rank in (0, 2, 3):
        assert sorted(results[rank][1:])[-2] < SLOW_S / 2  # one hiccup of the machine's is allowed for


def test_the_record_holds_every_iteration_of_every_rank(ranks: RankPool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ranks.run(run, "forward", str(folder))
    record = read_run(folder)
    assert sorted((r.rank, r.iteration) for r in record.iterations) == [(i, k) for i in range(4) for k in range(5)]
    by_iteration = {k: [r for r in record.iterations if r.iteration == k] for k in range(5)}
    for rows in by_iteration.values():
        assert sum(r.size for r in rows) == 40
        for r in rows:
            assert r.compute_s is not None
            assert r.wait_s is not None
            assert r.step_s is not None
            assert r.compute_s + r.wait_s <= r.step_s + 1e-3
    slow = [r for r in record.iterations if r.rank == 1]
    waits = [r.wait_s for r in by_iteration[0] if r.rank != 1]
    assert all(w is not None and w > SLOW_S / 2 for w in waits)  # they waited for rank 1
    assert [d.decided_at for d in record.decisions] == list(range(5))
    assert record.decisions[0].reason == "warm_up"
    assert record.decisions[1].reason == "moved"
    assert slow[-1].size < 10
    assert all(d.detail for d in record.decisions)


def test_observing_leaves_the_sizes_alone(ranks: RankPool, tmp_path: Path) -> None:
    ranks.run(run, "forward", str(tmp_path / "run"), True)
    record = read_run(tmp_path / "run")
    assert {r.size for r in record.iterations} == {10}
    assert "observing" in {d.reason for d in record.decisions}
    assert record.record.mode == "observe"


def means(rank: int, workers: int) -> list[Any]:
    """Metrics over unequal batches, one of them empty."""
    balancer = LoadBalancer(
        DDP(nn.Linear(1, 1)),
        global_batch_size=12,
        policy=FixedSizes((6, 0, 5, 1)),
        limits=Limits(min_size=0),
        settings=Settings(min_gain=0, warm_up=0),
    )
    loader = balancer.data_loader(make_dataset(24))
    out: list[Any] = []
    for k, _ in enumerate(loader):
        if k == 1:
            out.append(balancer.mean(float("nan") if rank == 1 else float(rank)))
            mean = balancer.mean(torch.tensor([[rank, 1.0]], dtype=torch.float32))
            assert isinstance(mean, torch.Tensor)
            assert mean.dtype == torch.float32
            out.append(mean.tolist())
            out.append(balancer.mean(torch.tensor(rank)))
            out.append((balancer.weight, balancer.share))
        balancer._weighted[0].ddp.module(torch.ones(1, 1))
        balancer._weighted[0].ddp(torch.ones(1, 1)).sum().backward()
    balancer.close()
    return out


def test_mean_is_over_samples(ranks: RankPool) -> None:
    results = ranks.run(means)
    expected = (0 * 6 + 2 * 5 + 3 * 1) / 12
    for rank, (number, tensor, integer, weights) in enumerate(results):
        assert number == expected
        assert tensor == [[pytest.approx(expected, rel=1e-6), 1.0]]
        assert float(integer) == expected
        assert weights == ((6, 0, 5, 1)[rank] * 4 / 12, (6, 0, 5, 1)[rank] / 12)


def own_reduction(rank: int, workers: int, how: str) -> Any:
    """Without DDP: the loss is weighted and the gradients reduced by hand."""
    net = make_net()
    balancer = LoadBalancer(
        net, global_batch_size=20, policy=FixedSizes((3, 14, 1, 2)), settings=Settings(min_gain=0, warm_up=0)
    )
    loader = balancer.data_loader(make_dataset(70))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    sizes = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        for features, classes, _ in loader:
            loss = nn.functional.cross_entropy(net(features), classes)
            optimizer.zero_grad()
            (loss * (balancer.weight if how == "mean" else balancer.share)).backward()
            balancer.report()
            for p in net.parameters():
                assert p.grad is not None
                dist.all_reduce(p.grad)
                if how == "mean":
                    p.grad /= workers
            optimizer.step()
            sizes.append(balancer.batch_size)
    balancer.close()
    return flat(net.parameters()), sizes


@pytest.mark.parametrize("how", ["mean", "sum"])
def test_own_reduction_by_weighting_the_loss(ranks: RankPool, how: str) -> None:
    alone = train_alone(70, 20, 2)["parameters"]
    for rank, (parameters, sizes) in enumerate(ranks.run(own_reduction, how)):
        assert max(abs(a - b) for a, b in zip(parameters, alone, strict=True)) <= 1e-12
        assert sizes[1] == (3, 14, 1, 2)[rank]


class FakeEvent:
    """A CUDA event on a clock of the test's."""

    now_ms = 0.0
    device_ms = 0.0

    def record(self) -> None:
        """Remember the time."""
        self.at_ms = FakeEvent.now_ms

    def query(self) -> bool:
        """Whether the device has come so far."""
        return FakeEvent.device_ms >= self.at_ms

    def elapsed_time(self, other: FakeEvent) -> float:
        """Milliseconds."""
        return other.at_ms - self.at_ms


def test_device_laps_are_read_when_their_events_have_passed() -> None:
    """The device seam: no lap before its events have passed, then the newest one, with its own size."""
    watch = CudaStopwatch(event=FakeEvent)
    FakeEvent.now_ms = FakeEvent.device_ms = 0.0
    watch.start()
    FakeEvent.now_ms = 100.0
    assert math.isnan(watch.stop(8).seconds)
    FakeEvent.now_ms = 150.0
    watch.start()
    watch.exclude(0.01)
    FakeEvent.now_ms = 350.0
    FakeEvent.device_ms = 120.0
    lap = watch.stop(16)
    assert lap.size == 8
    assert lap.seconds == pytest.approx(0.1)
    watch.start()
    FakeEvent.now_ms = FakeEvent.device_ms = 400.0
    lap = watch.stop(4)
    assert lap.size == 16
    assert lap.seconds == pytest.approx(0.19)


def test_the_stopwatch_follows_the_device() -> None:
    assert type(stopwatch_for(torch.device("cpu"))).__name__ == "CpuStopwatch"
