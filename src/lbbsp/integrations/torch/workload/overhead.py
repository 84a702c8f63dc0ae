"""Step times of plain and balanced DDP in turn, in the same processes; started by torchrun."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lbbsp.integrations.torch.balancer import LoadBalancer

__all__ = ["main"]

FEATURES = 256
SAMPLES = 16
"""On each rank; a step's time is set by the network's depth."""


class _Job:
    """A network and its loader; runs blocks of steps."""

    def __init__(self, depth: int, *, balanced: bool, workers: int, steps: int) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(depth) for layer in (nn.Linear(FEATURES, FEATURES), nn.ReLU())]
        self.model = DDP(nn.Sequential(*layers, nn.Linear(FEATURES, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        data = TensorDataset(torch.randn(SAMPLES * workers * steps, FEATURES))
        self.balancer: LoadBalancer | None = None
        self.loader: Any
        if balanced:
            self.balancer = LoadBalancer(self.model, global_batch_size=SAMPLES * workers)
            self.loader = self.balancer.data_loader(data)
        else:
            self.loader = DataLoader(data, batch_size=SAMPLES, sampler=DistributedSampler(data))
        self.moved = 0

    def step(self, inputs: torch.Tensor) -> None:
        loss = self.model(inputs).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def block(self) -> float:
        """Seconds a step over one epoch."""
        dist.barrier()
        started, steps = time.perf_counter(), 0
        for (inputs,) in self.loader:
            self.step(inputs)
            steps += 1
        return (time.perf_counter() - started) / steps


def _depth_for(step_ms: float, workers: int) -> int:
    """How many layers make a step of plain DDP about that long; the same on all ranks."""
    shallow, deep = 1, 20
    least_s, most_s = (
        min(_Job(depth, balanced=False, workers=workers, steps=20).block() for _ in range(3))
        for depth in (shallow, deep)
    )
    a_layer_s = max(most_s - least_s, 1e-6) / (deep - shallow)
    depth = torch.tensor([max(1, shallow + round((step_ms / 1e3 - least_s) / a_layer_s))])
    dist.broadcast(depth, 0)
    return int(depth)


def _blocks(step_ms: float, repeats: int, workers: int) -> Iterator[tuple[float, float]]:
    steps = max(30, min(300, round(3000 / step_ms)))
    depth = _depth_for(step_ms, workers)
    plain = _Job(depth, balanced=False, workers=workers, steps=steps)
    balanced = _Job(depth, balanced=True, workers=workers, steps=steps)
    for repeat in range(repeats + 1):
        sides = (plain, balanced) if repeat % 2 else (balanced, plain)
        times = {side: side.block() for side in sides}
        if repeat:  # the first is the warm-up
            yield times[plain], times[balanced]
    if balanced.balancer is not None:
        balanced.balancer.close()


def main(result: str, repeats: int, steps_ms: list[float]) -> None:
    """Measure and let rank 0 write the pairs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    pairs = {f"{ms:g}": list(_blocks(ms, repeats, dist.get_world_size())) for ms in steps_ms}
    if dist.get_rank() == 0:
        Path(result).write_bytes(msgspec.json.encode(pairs))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), [float(ms) for ms in sys.argv[3:]])
