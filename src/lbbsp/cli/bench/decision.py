"""``lbbsp bench decision``: what one decision costs, against the number of workers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from lbbsp.cli.demo.options import checked_whole
from lbbsp.cli.output import usable_json, write_json
from lbbsp.core.policy import Problem, Proportional
from lbbsp.core.predict import LastValue
from lbbsp.core.types import Bounds, Report, Reports
from lbbsp.engine import Engine, Gathered

__all__ = ["decision"]

WORKERS = (4, 16, 64, 256, 1_000, 4_000, 10_000)


def _decider(workers: int, rounds: int) -> Callable[[int], None]:
    """A function that makes decision k; speeds change by 10% each iteration, so that sizes move."""
    total = 64 * workers
    engine = Engine(Problem(total, Bounds.default(workers, total)), Proportional(predictor=LastValue()), warm_up=0)
    rng = np.random.default_rng(workers)
    base = rng.uniform(1.0, 10.0, workers)
    speeds = base * rng.uniform(0.9, 1.1, (rounds, workers))
    rows = np.full((workers, Report.WIDTH), np.nan)

    def decide(k: int) -> None:
        sizes = engine.newest.sizes
        rows[:, 0], rows[:, 1], rows[:, 2] = k, sizes, sizes / speeds[k]
        rows[:, 3], rows[:, 4], rows[:, 7] = speeds[k], 0.0, engine.checksum
        started = time.perf_counter()
        engine.handle(Gathered(k, Reports.from_rows(rows), 0.0))
        spent.append(time.perf_counter() - started)

    spent: list[float] = []
    decide.spent = spent  # type: ignore[attr-defined]
    return decide


def decision(
    *,
    repeats: int = 7,
    json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """One decision (from the gathered reports to the next allocation) for 4 to 10,000 workers.

    Parameters
    ----------
    repeats
        Blocks of decisions for each number of workers, the numbers in turn; the median over all counts.
    json
        A file for the figures.
    """
    checked_whole("repeats", repeats, 1)
    json = usable_json(json)
    blocks = {workers: max(5, min(200, 40_000 // workers)) for workers in WORKERS}
    deciders = {workers: _decider(workers, repeats * blocks[workers]) for workers in WORKERS}
    for repeat in range(repeats):
        for workers, decide in deciders.items():
            for k in range(repeat * blocks[workers], (repeat + 1) * blocks[workers]):
                decide(k)
    rows = []
    for workers, decide in deciders.items():
        spent_us = 1e6 * np.array(decide.spent)  # type: ignore[attr-defined]
        growth = workers * math.log2(workers)
        rows.append(
            {
                "workers": workers,
                "median_us": float(np.median(spent_us)),
                "p90_us": float(np.percentile(spent_us, 90)),
                "ns_per_w_log_w": float(np.median(spent_us)) * 1e3 / growth,
            }
        )
    write_json(json, "bench decision", {"decisions": rows})
    table = Table(title="One decision", title_justify="left")
    for heading in ("workers", "median, us", "90th percentile, us", "ns a W log W"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            f"{row['workers']:,}",
            f"{row['median_us']:,.0f}",
            f"{row['p90_us']:,.0f}",
            f"{row['ns_per_w_log_w']:.1f}",
        )
    Console().print(table)
