"""The demo command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from lbbsp.cli.demo.figures import Figures, figures_of
from lbbsp.cli.demo.launch import run_job
from lbbsp.cli.demo.options import checked_out, checked_shares, checked_whole
from lbbsp.cli.demo.view import Watcher, closing_table
from lbbsp.cli.output import usable_json, write_json
from lbbsp.errors import ConfigurationError, MissingDependencyError
from lbbsp.integrations.torch.workload.job import Job
from lbbsp.interfere import interfere
from lbbsp.report import Mark, Segment, draw, save_png

__all__ = ["demo"]

SEGMENTS = ["plain", "balanced", "balanced", "plain"]
DIGITS = 1797
"""Images in the dataset; a global batch must fit in."""


def demo(
    *,
    workers: int = 4,
    shares: str | None = None,
    change_at: int | None = None,
    iterations: int = 10,
    samples: int = 128,
    way: str = "auto",
    out: Path = Path("lbbsp-demo"),
    json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Train on real images with workers of unequal speed: plain DDP, then balanced, and what it gained.

    Parameters
    ----------
    workers
        Worker processes on this machine.
    shares
        Each worker's CPU share, as parts of one core, with commas between.
    change_at
        The iteration of each run before which the shares are reversed, so that one sees it adapt.
    iterations
        Iterations of each of the four runs (plain, balanced, balanced, plain).
    samples
        Samples of each worker in the equal split; the global batch is as many times the workers.
    way
        How to make the workers unequal: quota (exact, needs the right to make cgroups), competitors (busy
        processes, needs no right), or auto.
    out
        A folder for the records, demo.json and demo.png.
    json
        A file for the figures.
    """
    cores = len(os.sched_getaffinity(0))
    checked_whole("workers", workers, 2, 16)
    checked_whole("iterations", iterations, 7)
    checked_whole("samples", samples, 8, DIGITS // workers)
    wanted = checked_shares(shares, workers, cores)
    if change_at is not None:
        checked_whole("change-at", change_at, 1, iterations - 1)
        if wanted == wanted[::-1]:
            raise ConfigurationError(f"--change-at has no effect: {wanted} reversed is the same")
    json = usable_json(json)
    _check_extras()
    console = Console()
    with interfere(wanted, way=way) as interference:
        folder = checked_out(out)
        unequal_by = interference.describe()
        job = Job(
            folder=str(folder),
            segments=SEGMENTS,
            iterations=iterations,
            global_batch_size=samples * workers,
            change_at=change_at,
            launcher_pid=os.getpid(),
        )
        console.print(
            f"{workers} workers train a residual network on handwritten digits, {job.global_batch_size} samples an "
            f"update.\n{unequal_by}\nStarting them takes some seconds."
        )
        with Watcher(console, job, workers) as watcher:
            outcome = run_job(job, interference, wanted, watch=watcher)
    figures = figures_of(job, outcome)
    picture = _draw(figures, wanted, folder, change_at)
    result = figures.as_dict(shares=wanted, unequal_by=unequal_by)
    write_json(folder / "demo.json", "demo", result)
    write_json(json, "demo", result)
    console.print(closing_table(figures, wanted, unequal_by, changed=change_at is not None))
    console.print(f"picture: {picture}\nrecords: {folder}")


def _draw(figures: Figures, shares: list[float], folder: Path, change_at: int | None) -> Path:
    marks = () if change_at is None else (Mark(iteration=change_at, label="shares reversed"),)
    plain, balanced = figures.series
    figure = draw(
        [
            Segment(title="plain DDP", series=plain, marks=marks),
            Segment(title="balanced by lbbsp", series=balanced, marks=marks),
        ],
        cpu_shares=shares,
    )
    return save_png(figure, folder / "demo.png")


def _check_extras() -> None:
    """Everything that the workers and the picture need, before any work."""
    from importlib.util import find_spec

    for module in ("torch", "sklearn", "matplotlib", "psutil"):
        if find_spec(module) is None:
            raise MissingDependencyError(f'the demo needs {module}, which is not installed: pip install "lbbsp[demo]"')
