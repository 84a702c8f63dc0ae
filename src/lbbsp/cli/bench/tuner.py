"""``lbbsp bench tuner``: how fast and how calmly each sizing rule gets to the optimum on mixed GPUs, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from lbbsp.cli.demo.options import checked_whole
from lbbsp.cli.output import usable_json, write_json
from lbbsp.core.policy import Auto, Equal, Fitted, LeaderStraggler, Policy, Proportional
from lbbsp.errors import ConfigurationError
from lbbsp.sim.bsp import Outcome, simulate_bsp
from lbbsp.sim.profiles import ProfileTruth
from lbbsp.sim.profiles.scenarios import CHANGES, Cluster, changed, mixed_clusters
from lbbsp.sim.rivals import Dbs, Lbb, OmniLearn

__all__ = ["tuner"]

WITHIN = 1.05
"""Of the optimum; the bar."""
POLICIES: tuple[Policy[Any], ...] = (
    Equal(),
    Proportional(),
    LeaderStraggler(),
    Fitted(),
    Auto(),
    Dbs(),
    OmniLearn(),
    Lbb(),
)


def _figures(truth: ProfileTruth, outcome: Outcome) -> dict[str, float]:
    """Of one run.  Whether sizes are near the optimum is judged by times without noise, which no sizes can help."""
    quiet = np.array([truth.quiet_times_s(k, x).max() for k, x in enumerate(outcome.sizes)])
    near = quiet <= WITHIN * outcome.oracle_s
    reached = int(near.argmax()) if near.any() else len(near)
    moved = (np.diff(outcome.sizes, axis=0) != 0).any(axis=1)
    left = len(moved) - reached
    return {
        "iterations_to_within": float(reached),
        "moves_per_100_afterwards": 100.0 * float(moved[reached:].sum()) / left if left > 0 else float("nan"),
        "iterations_within": float(near.mean()),
        "total_s": float(outcome.iteration_s.sum()),
        "oracle_s": float(outcome.oracle_s.sum()),
    }


def _summary(runs: Sequence[dict[str, float]], iterations: int) -> dict[str, Any]:
    """Medians over the runs; runs that never came near count as the whole run, and are counted apart."""
    reached = [run["iterations_to_within"] for run in runs]
    after = [run["moves_per_100_afterwards"] for run in runs if not np.isnan(run["moves_per_100_afterwards"])]
    return {
        "runs": len(runs),
        "runs_never_within": sum(r >= iterations for r in reached),
        "iterations_to_within": float(np.median(reached)),
        "iterations_to_within_worst": float(np.max(reached)),
        "moves_per_100_afterwards": float(np.mean(after)) if after else None,
        "iterations_within": float(np.mean([run["iterations_within"] for run in runs])),
        # The mean of the runs' ratios: a job of long steps counts no more than another.
        "time_over_oracle": float(np.mean([run["total_s"] / run["oracle_s"] for run in runs])),
    }


def _add_speedup(rows: list[dict[str, Any]]) -> None:
    """Time of the equal split, plain BSP, over each rule's, on the same clusters with the same noise.

    Updates to a target do not depend on the split, so this is the ratio of the times to it.
    """
    equal = {(row["change"], row.get("cluster")): row["time_over_oracle"] for row in rows if row["policy"] == "equal"}
    for row in rows:
        row["speedup"] = equal[row["change"], row.get("cluster")] / row["time_over_oracle"]


def _run(cluster: Cluster, change: str, policy: Policy[Any], seed: int, iterations: int, noise: float) -> Any:
    truth = changed(cluster, change, iterations=iterations, noise=noise, seed=seed)
    outcome = simulate_bsp(
        truth,
        policy,
        global_batch_size=cluster.global_batch_size,
        iterations=iterations,
        bounds=truth.bounds(),
    )
    return _figures(truth, outcome)


def tuner(
    *,
    profiles: Path,
    iterations: int = 300,
    repeats: int = 5,
    noise: float = 0.05,
    json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Eight simulated GPUs of measured profiles, sized by each rule: time to the optimum, moves, total time.

    Parameters
    ----------
    profiles
        A folder with gavel/oracle_throughputs.json, or pollux/ with its placements, or both.
    iterations
        Iterations of each run.
    repeats
        Runs of each cluster, change and rule, with other noise.
    noise
        Relative standard deviation of a time.
    json
        A file for the figures.
    """
    checked_whole("iterations", iterations, 20)
    checked_whole("repeats", repeats, 1)
    if not 0 <= noise < 1:
        raise ConfigurationError(f"--noise {noise}: must lie in [0, 1)")
    json = usable_json(json)
    clusters, rows = mixed_clusters(profiles), []
    for change in CHANGES:
        for cluster in clusters:
            for policy in POLICIES:
                runs = [_run(cluster, change, policy, seed, iterations, noise) for seed in range(repeats)]
                rows.append({"change": change, "cluster": cluster.name, "policy": policy.name, "each": runs})
    for row in rows:
        row.update(_summary(row["each"], iterations))
    overall = [
        {
            "change": change,
            "policy": policy.name,
            **_summary(
                [run for row in rows if (row["change"], row["policy"]) == (change, policy.name) for run in row["each"]],
                iterations,
            ),
        }
        for change in CHANGES
        for policy in POLICIES
    ]
    for table in (rows, overall):
        _add_speedup(table)
    write_json(
        json,
        "bench tuner",
        {
            "iterations": iterations,
            "repeats": repeats,
            "noise": noise,
            "within": WITHIN,
            "clusters": [{"name": c.name, "global_batch_size": c.global_batch_size} for c in clusters],
            "overall": overall,
            "by_cluster": rows,
        },
    )
    Console().print(_table(f"{len(clusters)} clusters of 8 GPUs, {repeats} runs each", overall))


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("change", no_wrap=True)
    table.add_column("rule", no_wrap=True)
    for heading in ("to within 5%", "worst", "never", "moves/100", "time/oracle", "speedup"):
        table.add_column(heading, justify="right")
    before = None
    for row in rows:
        after = row["moves_per_100_afterwards"]
        table.add_row(
            row["change"] if row["change"] != before else "",
            row["policy"],
            f"{row['iterations_to_within']:.0f}",
            f"{row['iterations_to_within_worst']:.0f}",
            f"{row['runs_never_within']} of {row['runs']}",
            "-" if after is None else f"{after:.1f}",
            f"{row['time_over_oracle']:.3f}",
            f"{row['speedup']:.2f}",
        )
        before = row["change"]
    return table
