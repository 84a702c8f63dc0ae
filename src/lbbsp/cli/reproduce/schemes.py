"""Which schemes are compared, and the table that compares them on a job."""

from __future__ import annotations

from typing import Any

from lbbsp.cli.reproduce.section import Context
from lbbsp.core.policy.resolve import POLICIES
from lbbsp.sim.schemes import Balanced, Bsp, Job, Oracle, Scheme, Timeline, resolve_scheme

__all__ = ["COLUMNS", "bars", "compare", "policies"]

OTHERS = ["dbs", "omnilearn", "lbb", "static", "backup-1", "ssp-3", "asp"]
DIVISIBLE = ["flexrr", "flexrr-3"]
"""Schemes that cut an iteration into samples, so for devices whose time is proportional to them alone."""


def policies() -> list[Scheme]:
    """LB-BSP with each policy that ships, each once though it may have two names."""
    seen: list[Any] = [POLICIES["equal"]]
    schemes: list[Scheme] = []
    for name, policy in POLICIES.items():
        if policy not in seen:
            seen.append(policy)
            schemes.append(Balanced(policy=policy, label=f"lb-bsp/{name}"))
    return schemes


def compare(
    context: Context, cluster: str, job: Job, paper: float, *, divisible: bool
) -> tuple[list[list[Any]], dict[str, Timeline]]:
    """Rows (cluster, scheme, seconds, speedup, paper's, bound, share of the bound, efficiency, moves), and the runs."""
    runs: dict[str, Timeline] = {}
    others = [resolve_scheme(name) for name in OTHERS + DIVISIBLE * divisible]
    for scheme in [Bsp(), *policies(), *others, Oracle()]:
        context.say(f"{cluster}: {scheme.name}")
        runs[scheme.name] = scheme.run(job)
    bsp_s, oracle_s = runs["bsp"].batch_s, runs["oracle"].batch_s
    rows = [
        [
            cluster,
            name,
            run.batch_s,
            bsp_s / run.batch_s,
            paper if name == "lb-bsp/auto" else None,
            bsp_s / oracle_s,
            oracle_s / run.batch_s,
            run.outcome.moves if run.outcome else None,
        ]
        for name, run in runs.items()
    ]
    return rows, runs


COLUMNS = ["cluster", "scheme", "s an update", "speedup", "paper's", "bound", "share of the bound", "moves"]


def bars(axes: list[Any], groups: list[tuple[str, list[list[Any]]]]) -> None:
    """Speedups as bars, one panel a cluster, with the bound as a line and the paper's headline as another."""
    for axis, (title, rows) in zip(axes, groups, strict=True):
        names, speedups = [row[1] for row in rows], [row[3] for row in rows]
        colours = ["#c0392b" if name == "lb-bsp/auto" else "#7f8c8d" for name in names]
        axis.barh(names[::-1], speedups[::-1], color=colours[::-1])
        axis.axvline(rows[0][5], color="black", linewidth=1, label="bound")
        paper = next((row[4] for row in rows if row[4]), None)
        if paper:
            axis.axvline(paper, color="#2980b9", linewidth=1, linestyle="--", label="the paper's headline")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("speedup over BSP (time an update)")
        axis.legend(fontsize=8, loc="lower right")
