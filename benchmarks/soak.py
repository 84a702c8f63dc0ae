"""A long run on unequal workers whose shares keep changing: memory flat, ranks together, every epoch exact?

Run it with torchrun::

    torchrun --nproc-per-node=4 benchmarks/soak.py --minutes 30 --json benchmarks/results/soak.json

Each rank spends its share of a core by working, then sleeping in proportion to what it has just worked; the shares
change every few seconds, by a plan that is set by a seed.  Exit status 1 if an epoch misses or repeats a sample, ranks
hold different weights, or the memory of the last half grows by more than the limit.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import TensorDataset

import lbbsp
from lbbsp.torch import LoadBalancer, Settings

SAMPLES, GLOBAL_BATCH_SIZE, FEATURES = 4093, 128, 128  # 4093 is prime, so each epoch ends with a short batch
CHANGE_EVERY_S = 5.0
MOST_GROWTH_BYTES_PER_HOUR = 32 * 2**20


def share_of(rank: int, at_s: float) -> float:
    """The share of a core that a rank has at a time, 0.25 to 1."""
    generator = np.random.default_rng([7, rank, int(at_s // CHANGE_EVERY_S)])
    return float(generator.choice([1.0, 0.7, 0.5, 0.25]))


class Slowed(nn.Module):
    """A network that takes longer the smaller the rank's share is."""

    def __init__(self, rank: int, started_s: float) -> None:
        super().__init__()
        layers = [layer for _ in range(6) for layer in (nn.Linear(FEATURES, FEATURES), nn.Tanh())]
        self.net = nn.Sequential(*layers, nn.Linear(FEATURES, 1))
        self.rank, self.started_s = rank, started_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute, then sleep for what the others take of the core."""
        began_s = time.perf_counter()
        out: torch.Tensor = self.net(x)
        share = share_of(self.rank, time.perf_counter() - self.started_s)
        time.sleep((time.perf_counter() - began_s + 2e-4 * len(x)) * (1 / share - 1))
        return out


def growth_bytes_per_hour(samples: list[tuple[float, int]]) -> float:
    """The slope of resident memory over the last half of the run, by least squares."""
    late = samples[len(samples) // 2 :]
    if len(late) < 3:
        return 0.0
    at_s, size = np.array(late, dtype=np.float64).T
    return float(np.polyfit(at_s, size, 1)[0] * 3600)


def run(minutes: float) -> dict[str, Any]:
    """Train for so long; what this rank saw."""
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    started_s = time.perf_counter()
    model = DDP(Slowed(rank, started_s))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    data = TensorDataset(torch.randn(SAMPLES, FEATURES), torch.arange(SAMPLES))
    process = psutil.Process()
    memory: list[tuple[float, int]] = []
    epochs, steps, moves, wrong_epochs, drifted_epochs = 0, 0, 0, 0, 0
    with LoadBalancer(model, global_batch_size=GLOBAL_BATCH_SIZE, settings=Settings(time_limit_s=120)) as balancer:
        loader = balancer.data_loader(data)
        while True:
            loader.set_epoch(epochs)
            used = torch.zeros(SAMPLES, dtype=torch.float64)
            size_before = balancer.batch_size
            for features, index in loader:
                loss = model(features).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if balancer.batch_size:
                    used[index] += 1
                moves += balancer.batch_size != size_before
                size_before = balancer.batch_size
                steps += 1
            epochs += 1
            everyone = balancer.sum(used)
            assert isinstance(everyone, torch.Tensor)
            wrong_epochs += int((everyone != 1).any())
            weights = torch.cat([p.detach().reshape(-1).double() for p in model.parameters()])
            drifted_epochs += int((balancer.sum(weights) != weights * workers).any())
            memory.append((time.perf_counter() - started_s, process.memory_info().rss))
            elapsed_s = balancer.sum(time.perf_counter() - started_s)
            if float(elapsed_s) / workers >= minutes * 60:
                break
        growth = balancer._exchange.gather([growth_bytes_per_hour(memory)])[:, 0].tolist()
    return {
        "minutes": minutes,
        "workers": workers,
        "epochs": epochs,
        "steps": steps,
        "size_changes_on_rank_0": moves,
        "epochs_not_exact": wrong_epochs,
        "epochs_with_ranks_apart": drifted_epochs,
        "growth_bytes_per_hour": growth,
        "resident_bytes_on_rank_0": [size for _, size in memory[:: max(1, len(memory) // 60)]],
    }


def main() -> int:
    """Run, and let rank 0 write and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    figures = run(options.minutes)
    if dist.get_rank() == 0:
        about = {
            "schema": 1,
            "command": "soak",
            "version": lbbsp.__version__,
            "machine": platform.platform(),
        }
        if options.json:
            options.json.write_text(json.dumps({**about, **figures}, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({k: v for k, v in figures.items() if k != "resident_bytes_on_rank_0"}, indent=1))
    dist.barrier()
    dist.destroy_process_group()
    too_fast = max(figures["growth_bytes_per_hour"]) > MOST_GROWTH_BYTES_PER_HOUR and options.minutes >= 10
    return int(bool(figures["epochs_not_exact"] or figures["epochs_with_ranks_apart"] or too_fast))


if __name__ == "__main__":
    sys.exit(main())
