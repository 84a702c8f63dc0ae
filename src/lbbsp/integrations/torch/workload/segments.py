"""One training segment on one rank: plain DDP, or balanced by three more lines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

from lbbsp.core.allocate import equal_split
from lbbsp.core.order import EpochPlan, global_order, worker_slice
from lbbsp.core.policy import Problem
from lbbsp.core.types import Bounds
from lbbsp.integrations.torch.balancer import LoadBalancer
from lbbsp.integrations.torch.workload.job import Job
from lbbsp.integrations.torch.workload.net import ResidualNet
from lbbsp.recorder import Recorder, Step
from lbbsp.runtime import Settings

__all__ = ["run_balanced", "run_plain"]

LEARNING_RATE = 0.005


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, classes: torch.Tensor) -> float:
    """One update; the mean loss over this rank's samples."""
    loss = nn.functional.cross_entropy(model(images), classes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)


def run_balanced(
    job: Job, data: TensorDataset, folder: Path, before: Callable[[int], None], *, policy: str = "auto"
) -> list[float]:
    """A balanced segment; this rank's part of each iteration's loss, ``(x_i / X) loss_i``."""
    model = DDP(ResidualNet(width=job.width))
    settings = Settings(time_limit_s=job.time_limit_s)
    balancer = LoadBalancer(
        model, global_batch_size=job.global_batch_size, policy=policy, telemetry=folder, settings=settings
    )
    loader = balancer.data_loader(data, drop_last=True, num_workers=job.loader_workers)
    optimizer = _optimizer(model)
    parts: list[float] = []
    before(0)
    while len(parts) < job.iterations:
        for images, classes in loader:
            share = balancer.share
            parts.append(share * _train(model, optimizer, images, classes))
            if len(parts) == job.iterations:
                break
            before(len(parts))
    balancer.finish()
    balancer.close()
    return parts


def run_plain(
    job: Job, rank: int, workers: int, data: TensorDataset, folder: Path, before: Callable[[int], None]
) -> list[float]:
    """A segment of plain DDP over the same global batches, split equally.

    Nothing of lbbsp touches the training.  A stopwatch beside it notes when each gradient is accumulated on
    this rank; the last of them ends the rank's own compute, and what follows in ``backward`` is the wait.
    """
    model = DDP(ResidualNet(width=job.width))
    ready_s = [math.nan]

    def gradient_is_there(_: torch.Tensor) -> None:
        ready_s[0] = time.perf_counter()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(gradient_is_there)
    x = job.global_batch_size
    problem = Problem(x, Bounds.default(workers, x))
    settings = Settings(time_limit_s=job.time_limit_s)
    recorder = Recorder.open(
        folder, rank=rank, problem=problem, policy="none", settings=settings, machine={}, mode="plain"
    )
    recorder.begin(lag=1)
    sizes = equal_split(x, problem.bounds)
    plan = EpochPlan(len(data), x, drop_last=True)
    optimizer = _optimizer(model)

    def batches() -> Iterator[list[int]]:
        for k in range(job.iterations):
            epoch, within = divmod(k, plan.iterations)
            mine = worker_slice(plan.positions(within), sizes, rank)
            yield global_order(plan.length, seed=0, epoch=epoch)[mine.start : mine.stop].tolist()

    parts: list[float] = []
    before(0)
    step = Step(iteration=0, asked_s=time.perf_counter())
    for images, classes in DataLoader(data, batch_sampler=list(batches()), num_workers=job.loader_workers):
        step.size, step.total, step.epoch = len(images), x, step.iteration // plan.iterations
        step.input_s = time.perf_counter() - step.asked_s
        loss = nn.functional.cross_entropy(model(images), classes)
        optimizer.zero_grad()
        loss.backward()
        step.ready_s, step.reduced_s = ready_s[0], time.perf_counter()
        optimizer.step()
        step.compute_s = step.ready_s - step.asked_s
        parts.append(float(loss.detach()) * len(images) / x)
        step.ended_s = time.perf_counter()
        recorder.iteration(step)
        if len(parts) < job.iterations:
            before(len(parts))
        step = Step(iteration=len(parts), asked_s=time.perf_counter())
    recorder.close()
    return parts
