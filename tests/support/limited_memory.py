"""A script for torchrun: rank 1 has little memory and is given as many samples as its bounds allow."""

from __future__ import annotations

import json
import os
import resource
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import TensorDataset

from lbbsp import LastValue, Predictor
from lbbsp.core.policy import Problem, Proposal
from lbbsp.core.types import IntArray, Reports
from lbbsp.torch import Limits, LoadBalancer, Memory, Settings

SAMPLE_BYTES = 64 * 2**20
ROOM_BYTES = 43 * SAMPLE_BYTES


@dataclass(frozen=True)
class MostToRank1:
    """Three quarters to rank 1, or what its bounds allow."""

    predictor: Predictor[Any] = LastValue()
    name: str = "most"

    def init(self, problem: Problem) -> None:
        """No state."""

    def propose(
        self, problem: Problem, state: None, reports: Reports, current: IntArray
    ) -> tuple[Proposal | None, None]:
        """Propose it as a sure gain."""
        most = min(int(problem.bounds.hi[1]), 3 * problem.global_batch_size // 4)
        return Proposal(np.array([problem.global_batch_size - most, most]), 0.1, 1.0, "the test says so"), None


class Wide(nn.Module):
    """Holds SAMPLE_BYTES a sample for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        torch.empty(len(features) * SAMPLE_BYTES, dtype=torch.uint8)
        out: torch.Tensor = self.layer(features)
        return out


def main(folder: Path) -> None:
    """Train for eight iterations."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank, start = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
    model = DDP(Wide())
    balancer = LoadBalancer(
        model,
        global_batch_size=64,
        policy=MostToRank1(),
        limits=Limits(memory=Memory(caps_file=folder / "caps.json")),
        settings=Settings(min_gain=0, warm_up=0, time_limit_s=30),
    )
    loader = balancer.data_loader(TensorDataset(torch.ones(512, 4)))
    sizes = []
    for k, (features,) in enumerate(loader):
        if k == 1 and rank == 1:  # on both starts: the cap must keep the second one within it
            held = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmSize" in line)
            limit = int(held.split()[1]) * 1024 + ROOM_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        sizes.append(len(features))
        if rank == 1:
            (folder / f"sizes-{start}.json").write_text(json.dumps(sizes))
        model(features).sum().backward()
    balancer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
