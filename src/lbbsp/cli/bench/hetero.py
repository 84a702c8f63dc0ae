"""``lbbsp bench hetero``: steady inequality, real processes (plain and balanced segments in turn)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from lbbsp.cli.bench.changing import changing
from lbbsp.cli.demo.command import DIGITS
from lbbsp.cli.demo.figures import figures_of
from lbbsp.cli.demo.launch import run_job
from lbbsp.cli.demo.options import checked_shares, checked_whole
from lbbsp.cli.demo.view import closing_table
from lbbsp.cli.output import usable_json, write_json
from lbbsp.errors import ConfigurationError
from lbbsp.integrations.torch.workload.job import Job
from lbbsp.interfere import interfere

__all__ = ["hetero"]


def hetero(
    *,
    workers: int = 4,
    shares: str | None = None,
    iterations: int = 16,
    repeats: int = 3,
    samples: int = 128,
    way: str = "auto",
    trace: Path | None = None,
    pace: float = 1.0,
    json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Plain DDP against balanced on workers of unequal speed, in turn; medians over the repeats.

    Parameters
    ----------
    workers
        Worker processes on this machine.
    shares
        Each worker's CPU share, as parts of one core, with commas between.
    iterations
        Iterations of each run.
    repeats
        How often each side is run; the order turns round each time.
    samples
        Samples of each worker in the equal split.
    way
        quota, competitors or auto.
    trace
        A CSV file of shares (see lbbsp interfere --help): the workers' speeds change as it says, and the default
        policy runs in turn with proportional-last. It sets the workers and their shares.
    pace
        Seconds of the trace in a second.
    json
        A file for the figures.
    """
    checked_whole("iterations", iterations, 7)
    checked_whole("repeats", repeats, 1)
    if trace is not None:
        if shares is not None:
            raise ConfigurationError(f"--shares {shares}: has no effect with --trace, which sets them")
        checked_whole("samples", samples, 8, DIGITS // 4)
        changing(
            trace,
            iterations=iterations,
            repeats=repeats,
            samples=samples,
            way=way,
            pace=pace,
            json=usable_json(json),
        )
        return
    checked_whole("workers", workers, 2, 16)
    checked_whole("samples", samples, 8, DIGITS // workers)
    wanted = checked_shares(shares, workers, len(os.sched_getaffinity(0)))
    json = usable_json(json)
    segments = [
        side for k in range(repeats) for side in (("plain", "balanced") if k % 2 == 0 else ("balanced", "plain"))
    ]
    with (
        tempfile.TemporaryDirectory(prefix="lbbsp-bench-") as folder,
        interfere(wanted, way=way) as interference,
    ):
        unequal_by = interference.describe()
        job = Job(
            folder=folder,
            segments=segments,
            iterations=iterations,
            global_batch_size=samples * workers,
            launcher_pid=os.getpid(),
        )
        outcome = run_job(job, interference, wanted)
        figures = figures_of(job, outcome)
    write_json(json, "bench hetero", figures.as_dict(shares=wanted, unequal_by=unequal_by))
    Console().print(closing_table(figures, wanted, unequal_by, changed=False))
