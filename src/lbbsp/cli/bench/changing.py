"""``lbbsp bench hetero --trace``: changing inequality, the default policy against last-value in turn."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from lbbsp.cli.demo.launch import run_job
from lbbsp.cli.output import write_json
from lbbsp.errors import ConfigurationError
from lbbsp.integrations.torch.workload.job import Job, folder_of
from lbbsp.interfere import Interference, Replay, ShareTrace, interfere
from lbbsp.report import Series, series_of, summarise
from lbbsp.telemetry import read_run

__all__ = ["SIDES", "Restarting", "changing"]

SIDES = ("balanced", "proportional-last")
"""The default policy, and the paper's simplest predictor."""

_FIRST = 3
"""Iterations at a segment's start that are not counted."""


def changing(
    trace: Path, *, iterations: int, repeats: int, samples: int, way: str, pace: float, json: Path | None
) -> None:
    """Replay the trace under each side in turn; every segment begins it anew."""
    shares = ShareTrace.read(trace)
    if shares.workers < 2:
        raise ConfigurationError(f"{trace}: {shares.workers} worker; give a trace of 2 or more")
    segments = [side for k in range(repeats) for side in (SIDES if k % 2 == 0 else SIDES[::-1])]
    with (
        tempfile.TemporaryDirectory(prefix="lbbsp-bench-") as folder,
        interfere(shares.shares[0], way=way) as interference,
    ):
        job = Job(
            folder=folder,
            segments=segments,
            iterations=iterations,
            global_batch_size=samples * shares.workers,
            restart_shares=True,
            launcher_pid=os.getpid(),
        )
        replays = Restarting(interference, shares, pace)
        try:
            run_job(job, interference, list(shares.shares[0]), answer=replays)
        finally:
            replays.close()
        sides: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        for index, side in enumerate(segments):
            series = series_of(read_run(folder_of(job, index))).between(_FIRST, iterations)
            sides[side].append(_figures(series))
        described = interference.describe()
    figures: dict[str, Any] = {
        "trace": trace.name,
        "pace": pace,
        "iterations": iterations,
        "refused_changes": replays.refused,
        "unequal_by": described,
        "efficiency": {side: median(row["efficiency"] for row in rows) for side, rows in sides.items()},
        "iteration_s": {side: median(row["iteration_s"] for row in rows) for side, rows in sides.items()},
        "segments": sides,
    }
    write_json(json, "bench hetero --trace", figures)
    table = Table(title=f"{shares.workers} workers whose shares follow {trace.name}", title_justify="left")
    for heading in ("policy", "efficiency", "mean iteration, s", "moves", "equal split's efficiency"):
        table.add_column(heading, justify="right")
    for side, rows in sides.items():
        columns = ("efficiency", "iteration_s", "moves", "equal_efficiency")
        efficiency, iteration_s, moves, equal = (median(row[column] for row in rows) for column in columns)
        name = "auto" if side == "balanced" else side
        table.add_row(name, f"{efficiency:.3f}", f"{iteration_s:.3f}", f"{moves:g}", f"{equal:.3f}")
    Console().print(table)


class Restarting:
    """Begins the trace anew at each segment's start."""

    def __init__(self, interference: Interference, shares: ShareTrace, pace: float) -> None:
        self._interference, self._shares, self._pace = interference, shares, pace
        self._replay: Replay | None = None
        self.refused = 0

    def __call__(self, what: str) -> None:
        """A segment starts."""
        self.close()
        self._replay = Replay(self._interference, self._shares, pace=self._pace)

    def close(self) -> None:
        """Stop the replay."""
        if self._replay is not None:
            self._replay.close()
            self.refused += self._replay.refused
            self._replay = None


def _figures(series: Series) -> dict[str, float]:
    summary = summarise(series)
    # What the equal split would have taken at the speeds that were measured.
    equal_s = np.nanmax(np.divide(series.totals[:, None] / series.speeds.shape[1], series.speeds), axis=1)
    return {
        "efficiency": summary.efficiency,
        "iteration_s": float(np.nanmean(series.iteration_s)),
        "moves": float(summary.moves),
        "equal_efficiency": float(np.nansum(series.oracle_s) / np.nansum(equal_s)),
        "forecast_median_abs": summary.forecast.median_abs,
    }
