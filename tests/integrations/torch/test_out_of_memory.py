"""A rank that runs out of memory: one error on all ranks, at once, and a cap that the next start keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from lbbsp.errors import BatchTooLargeError
from lbbsp.torch import Limits, LoadBalancer, Memory, Settings
from tests.support.policies import FixedSizes
from tests.support.rank_pool import RankPool
from tests.support.training import make_dataset

LIMIT_S = 12.0
SOON_S = 8.0
CPU_TEXT = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"


def fail(kind: str) -> None:
    """As memory that runs out is reported: by the CPU's allocator, by CUDA's, by Python."""
    if kind == "cuda":
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
    if kind == "python":
        raise MemoryError
    raise RuntimeError(CPU_TEXT)


class Greedy(nn.Module):
    """A layer that runs out of memory above a batch size, in its forward or its backward pass."""

    def __init__(self, most: int, kind: str, where: str) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 4, dtype=torch.float64)
        self.most, self.kind, self.where = most, kind, where

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(features)
        if len(features) > self.most:
            if self.where == "forward":
                fail(self.kind)
            out.register_hook(lambda _: fail(self.kind))
        return out


def train(
    rank: int, workers: int, victim: int, kind: str, where: str, guard: str, file: str | None, num_workers: int
) -> Any:
    """Rank ``victim`` gets 20 of 32 samples in iteration 1 or 2, of which it can hold 12."""
    group = dist.new_group(list(range(workers)), timeout=timedelta(seconds=LIMIT_S))  # a reduction is left in it
    model = DDP(Greedy(12 if rank == victim else 10**6, kind, where), process_group=group)
    sizes = tuple(20 if r == victim else 4 for r in range(workers))
    balancer = LoadBalancer(
        model,
        global_batch_size=32,
        policy=FixedSizes(sizes),
        limits=Limits(memory=Memory(caps_file=file)),
        settings=Settings(min_gain=0, warm_up=0, time_limit_s=LIMIT_S),
    )
    loader = balancer.data_loader(make_dataset(320), num_workers=num_workers)
    last_s = time.monotonic()
    try:
        with balancer if guard == "with" else balancer.guard():
            for features, _, _ in loader:
                last_s = time.monotonic()
                model(features).sum().backward()
    except BatchTooLargeError as error:
        return error.rank, error.size, error.cap, str(error), time.monotonic() - last_s
    finally:
        balancer.close()
    return "done"


@pytest.mark.parametrize(
    ("victim", "kind", "where", "guard", "num_workers"),
    [
        (1, "cpu", "forward", "guard", 0),
        (0, "cpu", "backward", "with", 0),
        (3, "cuda", "backward", "guard", 2),
        (2, "python", "forward", "with", 0),
    ],
)
def test_all_ranks_end_with_one_error(
    ranks: RankPool, victim: int, kind: str, where: str, guard: str, num_workers: int, tmp_path: Path
) -> None:
    file = tmp_path / "run" / "caps.json"
    outcomes = ranks.run(train, victim, kind, where, guard, str(file), num_workers)
    for rank, size, cap, message, after_s in outcomes:
        assert (rank, size, cap) == (victim, 20, 16)
        assert message == outcomes[0][3]
        assert message.startswith(f"rank {victim} ran out of memory with 20 samples in iteration ")
        assert f"its cap is now 16 samples, kept in {file}: start again" in message
        assert after_s < SOON_S
    kept = json.loads(file.read_text())
    assert kept["caps"][str(victim)]["cap"] == 16
    assert list(kept["caps"]) == [str(victim)]
    assert [p.name for p in file.parent.iterdir()] == ["caps.json"]


SCRIPT = Path(__file__).parent.parent.parent / "support" / "limited_memory.py"


@pytest.mark.timeout(110)
def test_torchrun_starts_again_with_the_cap(tmp_path: Path) -> None:
    """Real memory: a rank meets its RLIMIT_AS, the job starts again by itself, and the rank's cap holds."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    # Sharing the rendezvous's store, torch 2.13's second start may read the first one's addresses and never connect.
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", str(SCRIPT), str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "BatchTooLargeError: rank 1 ran out of memory with 48 samples in iteration 1 (RuntimeError:" in ended.stderr
    assert "its cap is now 38 samples, kept in" in ended.stderr
    kept = json.loads((tmp_path / "caps.json").read_text())
    assert (kept["caps"]["1"]["cap"], kept["caps"]["1"]["size"]) == (38, 48)
    runs = [json.loads((tmp_path / f"sizes-{start}.json").read_text()) for start in (0, 1)]
    assert runs == [[32, 48], [32, *[38] * 7]]
