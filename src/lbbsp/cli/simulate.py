"""``lbbsp simulate``: what balancing would bring on a described cluster, or to a recorded run."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lbbsp.cli.demo.options import checked_whole
from lbbsp.cli.output import usable_json, write_json
from lbbsp.core.policy import resolve_policy
from lbbsp.engine import Decision
from lbbsp.errors import ConfigurationError
from lbbsp.sim.cluster import load_cluster
from lbbsp.sim.record import record as write_record
from lbbsp.sim.replay import Recorded, recorded
from lbbsp.sim.schemes import Balanced, Bsp, Oracle, Scheme, Timeline, resolve_scheme
from lbbsp.telemetry import read_run

__all__ = ["simulate"]

USUAL = ["static", "backup", "asp", "ssp", "flexrr"]
MANY = 500_000
"""Worker iterations above which the event-driven schemes are run only when asked for: they take minutes."""


def _figures(run: Timeline, took_s: float) -> dict[str, Any]:
    """A scheme's line; the run itself, which is large for many workers, is not kept."""
    return {
        "scheme": run.scheme,
        "batch_s": run.batch_s,
        "total_s": run.total_s,
        "wasted_samples": run.wasted,
        "moves": run.outcome.moves if run.outcome else None,
        "simulated_in_s": took_s,
    }


def simulate(
    source: Path,
    *,
    policy: list[str] | None = None,
    scheme: list[str] | None = None,
    iterations: int | None = None,
    record: Path | None = None,
    json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """What each scheme would bring on a cluster described by a TOML file, or to a recorded run.

    Parameters
    ----------
    source
        A cluster file (.toml), or the folder of a recorded run.
    policy
        A policy to balance by; may be given several times.  By default auto.
    scheme
        Another scheme: static-N, backup-N, asp, ssp-N, flexrr-N, lb-bsp/POLICY; may be given several times.
        By default one of each.
    iterations
        Instead of the file's.
    record
        A new folder for the record of the first policy's run, as a real job would have written it.
    json
        A file for the figures.
    """
    json = usable_json(json)
    for name in policy or []:
        resolve_policy(name)
    if iterations is not None:
        checked_whole("iterations", iterations, 1)
    if record is not None and record.exists() and (not record.is_dir() or any(record.iterdir())):
        raise ConfigurationError(f"--record {record}: something is there already; name a new folder")
    console = Console()
    if source.suffix == ".toml":
        cluster = load_cluster(source, iterations=iterations)
        size, run_scheme, note = cluster.workers * cluster.iterations, cluster.run, ""
        if record is not None and len(cluster.spans) > 1:
            raise ConfigurationError(f"--record {record}: a record is of one start; {source} has joins or leaves")
        job, lag = cluster.spans[0].job, cluster.description.lag
    else:
        replay = _replayed(source, iterations)
        job = replay.job()
        size, note, lag = job.workers * job.iterations, _note(replay), replay.lag

        def run_scheme(scheme: Scheme) -> Timeline:
            return scheme.run(job)

    names = [f"lb-bsp/{name}" for name in policy or ["auto"]]
    others = scheme if scheme is not None else [name for name in USUAL if size <= MANY or name in {"static", "backup"}]
    decisions: list[Decision] = []
    wanted: list[Scheme] = [Bsp(), *(resolve_scheme(name) for name in dict.fromkeys([*names, *others])), Oracle()]
    wanted = [replace(each, lag=lag) if isinstance(each, Balanced) else each for each in wanted]
    if record is not None:
        wanted[1] = Balanced(
            policy=resolve_policy(names[0].partition("/")[2]), label=names[0], lag=lag, on_decision=decisions.append
        )
    figures: list[dict[str, Any]] = []
    notes = [note] if note else []
    if scheme is None and len(others) < len(USUAL):
        notes.append(
            f"asp, ssp and flexrr left out: {size:,} worker iterations take minutes; ask for them by --scheme."
        )
    for each in track(wanted, "simulating", console=console, transient=True, disable=not sys.stdout.isatty()):
        started = time.perf_counter()
        try:
            run = run_scheme(each)
        except ConfigurationError as error:
            if scheme is not None or each.name in {"bsp", "oracle", *names}:
                raise
            notes.append(f"{each.name} left out: {error}.")
            continue
        figures.append(_figures(run, time.perf_counter() - started))
        if record is not None and each is wanted[1] and run.outcome is not None:
            write_record(record, job, run.outcome, decisions, policy=names[0].partition("/")[2], lag=lag)
    bsp_s, oracle_s = figures[0]["batch_s"], figures[-1]["batch_s"]
    for row in figures:
        row |= {"speedup": bsp_s / row["batch_s"], "efficiency": oracle_s / row["batch_s"]}
    write_json(json, "simulate", {"source": str(source), "notes": notes, "schemes": figures})
    console.print(_table(source, figures))
    console.print(f"The bound, what a clairvoyant split would bring: {bsp_s / oracle_s:.2f}x.")
    for text in notes:
        console.print(text, soft_wrap=True, highlight=False, markup=False)


def _replayed(source: Path, iterations: int | None) -> Recorded:
    if not source.exists():
        raise ConfigurationError(
            f"{source} does not exist; name a cluster file (.toml) or the folder of a recorded run"
        )
    replay = recorded(read_run(source))
    if iterations is not None:
        raise ConfigurationError(f"--iterations has no effect on a recorded run: it has {replay.iterations}")
    return replay


def _note(replay: Recorded) -> str:
    measured_s = float(np.mean(replay.step_s))
    return (
        f"Recorded ({replay.mode}): {replay.iterations} full iterations of {measured_s:.4g} s on the mean, of which "
        f"{replay.common_s:.4g} s are common to all schemes; {replay.left_out} others left out. Speeds are taken as "
        "independent of the batch."
    )


def _table(source: Path, figures: list[dict[str, Any]]) -> Table:
    table = Table(title=f"Simulated: {source}", title_justify="left")
    for heading in ("scheme", "s a global batch", "speedup", "efficiency", "moves", "wasted samples"):
        table.add_column(heading, justify="left" if heading == "scheme" else "right")
    for row in figures:
        table.add_row(
            row["scheme"],
            f"{row['batch_s']:.4g}",
            f"{row['speedup']:.3f}x",
            f"{row['efficiency']:.3f}",
            "" if row["moves"] is None else str(row["moves"]),
            f"{row['wasted_samples']:,}" if row["wasted_samples"] else "",
        )
    return table
