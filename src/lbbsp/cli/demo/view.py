"""What the demo shows: live progress, then a table."""

from __future__ import annotations

import time
from statistics import median

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lbbsp.cli.demo.figures import Figures
from lbbsp.integrations.torch.workload.job import Job, folder_of
from lbbsp.telemetry import IterationRecord, RunFollower

__all__ = ["Watcher", "closing_table"]

_TITLES = {"plain": "plain DDP", "balanced": "balanced by lbbsp"}
_BAR = 24
_SAY_EVERY_S = 10.0


class Watcher:
    """Follows the records as they are written: a live table on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, job: Job, workers: int) -> None:
        self._console, self._job, self._workers = console, job, workers
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks = [
            self._progress.add_task(_TITLES[mode], total=job.iterations, start=False) for mode in job.segments
        ]
        self._segment = 0
        self._follower: RunFollower | None = None
        self._newest: dict[int, IterationRecord] = {}
        self._said_s = time.monotonic()
        self._live = Live(self._view(), console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Watcher:
        """Start the display."""
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        if self._console.is_terminal:
            self._live.stop()

    def __call__(self) -> None:
        """Take in what has been written since."""
        following = self._segment + 1
        if self._follower is None:
            if not folder_of(self._job, self._segment).is_dir():
                return
            self._progress.start_task(self._tasks[self._segment])
            self._follower = RunFollower(folder_of(self._job, self._segment))
        for record in self._follower.poll():
            if isinstance(record, IterationRecord):
                self._newest[record.rank] = record
        done = 1 + min((r.iteration for r in self._newest.values()), default=-1)
        self._progress.update(self._tasks[self._segment], completed=done)
        if following < len(self._job.segments) and folder_of(self._job, following).is_dir():
            self._progress.update(self._tasks[self._segment], completed=self._job.iterations)
            self._segment, self._follower, self._newest = following, None, {}
        if self._console.is_terminal:
            self._live.update(self._view())
        elif time.monotonic() - self._said_s > _SAY_EVERY_S and self._newest:
            self._said_s = time.monotonic()
            sizes = " ".join(str(r.size) for _, r in sorted(self._newest.items()))
            step_s = max(r.step_s or 0.0 for r in self._newest.values())
            title = _TITLES[self._job.segments[self._segment]]
            self._console.print(f"{title}: iteration {done} of {self._job.iterations}, {step_s:.2f} s, batches {sizes}")

    def _view(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for heading in ("worker", "batch", "compute", "wait", ""):
            table.add_column(heading, justify="left" if heading in {"", "worker"} else "right")
        for rank in range(self._workers):
            record = self._newest.get(rank)
            if record is None:
                table.add_row(str(rank), "-", "-", "-", "starting" if not self._segment else "")
                continue
            compute_s, wait_s = record.compute_s or 0.0, record.wait_s or 0.0
            cells = round(_BAR * compute_s / max(compute_s + wait_s, 1e-9))
            bar = f"[green]{'━' * cells}[/][red]{'╌' * (_BAR - cells)}[/]"
            table.add_row(str(rank), str(record.size), f"{compute_s:.2f} s", f"{wait_s:.2f} s", bar)
        return Group(self._progress, table)


def closing_table(figures: Figures, shares: list[float], unequal_by: str, *, changed: bool) -> Group:
    """The result: plain beside balanced."""
    top = Table(title="Plain DDP against balanced", title_justify="left")
    top.add_column("")
    top.add_column("plain DDP", justify="right")
    top.add_column("balanced", justify="right")
    plain, balanced = figures.plain, figures.balanced
    top.add_row("seconds an iteration", f"{figures.plain_s:.3f}", f"{figures.balanced_s:.3f}")
    rates = [f"{median(s.samples_per_s for s in side):,.1f}" for side in (plain, balanced)]
    top.add_row("samples a second", *rates)
    speeds = [median(v) for v in zip(*(s.speeds_samples_per_s for s in plain), strict=True)]
    for worker, share in enumerate(shares):
        idle = [f"{median(s.idle_share[worker] for s in side):.0%}" for side in (plain, balanced)]
        batch = figures.allocation[worker]
        top.add_row(
            f"idle, worker {worker} (CPU share {share:g}, measured {figures.measured_shares[worker]:.2f}; "
            f"{speeds[worker]:.0f} samples/s)",
            idle[0],
            f"{idle[1]}, batch {batch}",
        )
    bottom = Table(box=None, show_header=False, pad_edge=False)
    bottom.add_row("speedup", f"{figures.speedup:.2f}x")
    bottom.add_row("bound (perfect balance)", f"{figures.bound:.2f}x, of which {figures.speedup / figures.bound:.0%}")
    bottom.add_row("efficiency against a clairvoyant split", f"{figures.efficiency:.3f}")
    bottom.add_row("balanced after", f"{figures.reached_after} iterations")
    bottom.add_row("largest difference of the loss curves", f"{figures.loss_difference:.1e}")
    if changed:
        bottom.add_row("the shares were reversed in mid-run;", "times are means over all iterations then")
    bottom.add_row("made unequal by", unequal_by)
    return Group(top, bottom)
