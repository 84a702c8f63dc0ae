"""The process that torchrun starts for each rank: ``python -m lbbsp.integrations.torch.workload.worker JOB``."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import psutil
import torch
import torch.distributed as dist

from lbbsp.integrations.torch.workload.job import Job, Outcome, folder_of
from lbbsp.integrations.torch.workload.net import ResidualNet, digits
from lbbsp.integrations.torch.workload.segments import run_balanced, run_plain
from lbbsp.interfere import join, measure_share

__all__ = ["ask_launcher", "main"]


def ask_launcher(folder: Path, number: int, what: str, *, launcher_pid: int, time_limit_s: float = 30.0) -> None:
    """Have the launcher change the CPU shares ("start" or "change"), and wait until it has.

    The shares are the launcher's, since a worker may not be allowed to set them.
    """
    (folder / f".request-{number}").write_text(what)
    deadline = time.monotonic() + time_limit_s
    while not (folder / f".done-{number}").exists():
        if time.monotonic() > deadline or not psutil.pid_exists(launcher_pid):
            raise TimeoutError(f"the launcher did not {what} the shares within {time_limit_s:g} s")
        time.sleep(0.005)


def main(path: str) -> None:
    """Run the job's segments on this rank."""
    job = msgspec.json.decode(Path(path).read_bytes(), type=Job)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=job.time_limit_s))
    rank, workers = dist.get_rank(), dist.get_world_size()
    data = digits(job.side)
    folder = Path(job.folder)
    _warm_up(job)
    join(int(os.environ["LOCAL_RANK"]))  # only now: the imports above would take for ever on a small share
    dist.barrier()
    shares = torch.zeros(workers, dtype=torch.float64)
    shares[rank] = measure_share(duration_s=1.0)
    dist.all_reduce(shares)
    asked = iter(range(10**9))

    def before(iteration: int) -> None:
        if not psutil.pid_exists(job.launcher_pid):
            raise SystemExit("the launcher is gone")
        if iteration == job.change_at or (iteration == 0 and (job.restart_shares or job.change_at is not None)):
            number = next(asked)
            if rank == 0:
                what = "change" if iteration else "start"
                ask_launcher(folder, number, what, launcher_pid=job.launcher_pid)
        if iteration == 0:
            dist.barrier()

    losses = []
    for index, mode in enumerate(job.segments):
        records = folder_of(job, index)
        if mode == "plain":
            parts = run_plain(job, rank, workers, data, records, before)
        else:
            parts = run_balanced(job, data, records, before, policy="auto" if mode == "balanced" else mode)
        total = torch.tensor(parts, dtype=torch.float64)
        dist.all_reduce(total)
        losses.append(total.tolist())
    if rank == 0:
        outcome = Outcome(losses=losses, measured_shares=shares.tolist())
        (folder / "outcome.json").write_bytes(msgspec.json.encode(outcome))
    dist.barrier()
    dist.destroy_process_group()


def _warm_up(job: Job) -> None:
    """Load what the first forward and backward pass loads, before the CPU is cut."""
    torch.nn.parallel.DistributedDataParallel(ResidualNet(width=job.width))(
        torch.zeros(2, 1, job.side, job.side)
    ).sum().backward()


if __name__ == "__main__":
    main(sys.argv[1])
