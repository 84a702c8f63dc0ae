"""Hardware efficiency: time per update on CPU and GPU clusters, and on the recorded traces."""

from __future__ import annotations

from typing import Any

import numpy as np

from lbbsp.cli.reproduce.clusters import cpu_job, gpu_job
from lbbsp.cli.reproduce.schemes import COLUMNS, bars, compare, policies
from lbbsp.cli.reproduce.section import Context, Section
from lbbsp.core.allocate import minmax
from lbbsp.core.policy import Equal
from lbbsp.core.time_models import LinearTimes
from lbbsp.core.types import FloatArray
from lbbsp.sim.bsp import SpeedTruth
from lbbsp.sim.schemes import Balanced, Job, Scheme, resolve_scheme

__all__ = ["PAPER_CPU", "PAPER_GPU", "cpu", "gpu", "recorded_traces"]

PAPER_CPU, PAPER_GPU = 1.387, 1.54
"""The paper's headlines: training time of BSP over that of LB-BSP."""


def cpu(context: Context) -> Section:
    """Shared CPU machines, alike and of several types."""
    rows, groups, sources = [], [], set()
    for cluster, mixed in (("shared CPU machines, alike", False), ("shared CPU machines, mixed", True)):
        job, source = cpu_job(context, context.few(600, 40), mixed=mixed)
        found, _ = compare(context, cluster, job, PAPER_CPU, divisible=True)
        rows += found
        groups.append((cluster, found))
        sources.add(source)
    return Section(
        name="cpu",
        title="Time per update on CPU clusters",
        columns=COLUMNS,
        rows=rows,
        draw=lambda axes: bars(axes, groups),
        panels=2,
        notes=[
            f"8 workers, 64 samples each in the equal split; {'; '.join(sorted(sources))}. The bound is the speedup "
            "of a clairvoyant split. Asynchronous schemes can pass the share 1: they do not wait, and pay in updates.",
        ],
    )


def gpu(context: Context) -> Section:
    """Mixes of GPU generations."""
    rows, groups, sources = [], [], {}
    for cluster, with_t4 in (("2 K80, 3 P100, 3 V100", False), ("2 each of K80, P100, T4, V100", True)):
        job, source = gpu_job(context, context.few(400, 30), with_t4=with_t4)
        found, _ = compare(context, cluster, job, PAPER_GPU, divisible=False)
        rows += found
        groups.append((cluster, found))
        sources[cluster] = source
    return Section(
        name="gpu",
        title="Time per update on GPU clusters",
        columns=COLUMNS,
        rows=rows,
        draw=lambda axes: bars(axes, groups),
        panels=2,
        notes=[
            "8 workers, 64 samples each in the equal split, 5% noise. "
            + "; ".join(f"{cluster}: {source}" for cluster, source in sources.items())
            + ". The bound fills dips in measured profiles and does not foresee noise, so a run can pass it by that. "
            "Work reassignment is left out: it cuts an iteration into samples, which a GPU computes at once."
        ],
    )


def recorded_traces(context: Context) -> Section:
    """Efficiency on recorded courses of speeds."""
    from lbbsp.cli.reproduce.traces import batch_speeds, machines

    courses: list[tuple[str, FloatArray]] = []
    usage = context.find("traces", "alibaba2018", "machine_usage.csv.gz")
    if usage is not None:
        courses.append(("alibaba2018", machines(usage, context.few(4000, 60))))
    for number in (1, 2, 3, 4):
        path = context.find("traces", "pai", f"job_{number}_norm.csv")
        if path is not None:
            courses.append((f"pai job {number}", batch_speeds(path)[: context.few(10_000, 60)]))
    rows: list[list[Any]] = []
    for name, course in courses:
        workers, speeds = course.shape[1], 64 * course
        x = 64 * workers
        perfect_s = float((x / speeds.sum(axis=1)).sum())
        job = Job(truth=SpeedTruth(speeds, cpu=np.minimum(course, 1.0)), global_batch_size=x, iterations=len(course))
        rivals = [resolve_scheme(name) for name in ("dbs", "omnilearn", "lbb")]
        schemes: list[Scheme] = [Balanced(policy=Equal(), label="bsp"), *policies(), *rivals]
        bsp_s = None
        for scheme in schemes:
            context.say(f"{name}: {scheme.name}")
            run = scheme.run(job)
            outcome = run.outcome
            bsp_s = bsp_s or run.total_s
            rows.append(
                [
                    name,
                    scheme.name,
                    perfect_s / run.total_s,
                    outcome.efficiency if outcome else None,
                    bsp_s / run.total_s,
                    bsp_s / perfect_s,
                    outcome.moves if outcome else None,
                ]
            )
        best = minmax(LinearTimes(speeds.mean(axis=0)), x, job.problem.bounds)
        static_s = float((best / speeds).max(axis=1).sum())
        rows.append(
            [
                name,
                "static, true means",
                perfect_s / static_s,
                None,
                (bsp_s or 0) / static_s,
                (bsp_s or 0) / perfect_s,
                None,
            ]
        )
    return Section(
        name="traces",
        title="Efficiency on recorded traces",
        columns=[
            "trace",
            "scheme",
            "efficiency (of X / sum v)",
            "efficiency (whole samples)",
            "speedup",
            "bound",
            "moves",
        ],
        rows=rows,
        draw=lambda axes: _bars_by_trace(axes[0], rows),
        notes=[
            "64 samples a worker, no communication. Efficiency: the clairvoyant time over the actual one; X / sum v "
            "ignores that samples are whole. The static split is the best one for the true mean speeds of the whole "
            "trace, which no job knows."
            if rows
            else "No traces were given: --data FOLDER with traces/alibaba2018 and traces/pai."
        ],
    )


def _bars_by_trace(axis: Any, rows: list[list[Any]]) -> None:
    traces, schemes = list(dict.fromkeys(r[0] for r in rows)), list(dict.fromkeys(r[1] for r in rows))
    for n, scheme in enumerate(schemes):
        values = [next((r[2] for r in rows if r[:2] == [trace, scheme]), np.nan) for trace in traces]
        axis.bar(np.arange(len(traces)) + n * 0.8 / len(schemes), values, 0.8 / len(schemes), label=scheme)
    axis.set_xticks(np.arange(len(traces)) + 0.4, traces, fontsize=8)
    axis.set_ylabel("efficiency, of X / sum v")
    if schemes:
        axis.legend(fontsize=6)
