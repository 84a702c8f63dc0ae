"""What deciding costs against the number of workers, and how the simulator scales."""

from __future__ import annotations

import math
import time
import tracemalloc
from typing import Any

import numpy as np

from lbbsp.cli.reproduce.section import Context, Section
from lbbsp.core.policy import Problem, resolve_policy
from lbbsp.core.types import Bounds, Reports
from lbbsp.engine import Engine, Forecaster, Gathered, Measured
from lbbsp.sim.cluster import cluster_of
from lbbsp.sim.schemes import Balanced

__all__ = ["decisions", "scale"]

POLICY = "proportional"
SIZES = (4, 16, 64, 256, 1_000, 4_000, 10_000)


def _times_us(workers: int, rounds: int, seed: int) -> tuple[float, float]:
    """Medians of one forecast of all workers' speeds and of one decision, microseconds."""
    policy, x = resolve_policy(POLICY), 64 * workers
    engine = Engine(Problem(x, Bounds.default(workers, x)), policy, warm_up=0)
    forecaster = Forecaster(policy.predictor, workers=workers, warm_up=0)
    rng = np.random.default_rng(seed)
    base, unknown = rng.uniform(1.0, 10.0, workers), np.full(workers, np.nan)
    forecasting, deciding = [], []
    for k in range(rounds):
        sizes = engine.allocation(k).sizes
        times = sizes / (base * rng.uniform(0.9, 1.1, workers))
        started = time.perf_counter()
        mean, spread = forecaster.measured(Measured(k, sizes.astype(np.float64), times, unknown, unknown))
        forecasting.append(time.perf_counter() - started)
        reports = Reports(
            iteration=np.full(workers, k),
            size=sizes,
            compute_s=times,
            speed=mean,
            spread=spread,
            cpu=unknown,
            memory=unknown,
            cost_s=unknown,
            checksum=np.full(workers, engine.checksum),
        )
        started = time.perf_counter()
        engine.handle(Gathered(k, reports, 0.0))
        deciding.append(time.perf_counter() - started)
    return 1e6 * float(np.median(forecasting)), 1e6 * float(np.median(deciding))


def decisions(context: Context) -> Section:
    """The cost of one decision."""
    rows: list[list[Any]] = []
    for workers in SIZES:
        context.say(f"decisions: {workers} workers")
        forecast_us, decision_us = _times_us(workers, context.few(60, 5), context.seed)
        rows.append([workers, forecast_us, decision_us, 1e3 * decision_us / (workers * math.log2(workers))])

    def draw(axes: list[Any]) -> None:
        axes[0].loglog([r[0] for r in rows], [r[2] for r in rows], "o-", label="one decision")
        axes[0].loglog([r[0] for r in rows], [r[1] for r in rows], "s--", label="forecasts of all workers")
        axes[0].set_xlabel("workers")
        axes[0].set_ylabel("us")
        axes[0].legend()

    return Section(
        name="decisions",
        title="The cost of a decision against the number of workers",
        columns=["workers", "forecasts of all workers, us", "one decision, us", "ns a W log W"],
        rows=rows,
        draw=draw,
        notes=[
            f"Policy {POLICY}. Measured on this machine while nothing else should run. In a real job each worker "
            "forecasts its own."
        ],
    )


def scale(context: Context) -> Section:
    """Time and memory of a large simulation."""
    sizes, iterations = ((100, 200), 20) if context.short else ((1_000, 2_000, 5_000, 10_000), 100)
    rows: list[list[Any]] = []
    for workers in sizes:
        context.say(f"scale: {workers} workers")
        rows.append([workers, iterations, *_run(workers, iterations, context.seed, traced=True)])
    if not context.short:
        context.say("scale: 10,000 workers for 1,000 iterations")
        rows.append([10_000, 1_000, *_run(10_000, 1_000, context.seed, traced=False)])
    measured = rows[: len(sizes)]

    def draw(axes: list[Any]) -> None:
        axes[0].loglog([r[0] for r in measured], [r[3] for r in measured], "o-")
        axes[0].set_ylabel("ms an iteration")
        axes[1].loglog([r[0] for r in measured], [r[4] for r in measured], "o-")
        axes[1].set_ylabel("peak memory, MB")
        for axis in axes:
            axis.set_xlabel("workers")

    return Section(
        name="scale",
        title="Scale of the simulator",
        columns=["workers", "iterations", "s in all", "ms an iteration", "peak memory, MB", "efficiency"],
        rows=rows,
        draw=draw,
        panels=2,
        notes=[
            f"Policy {POLICY}. The whole loop: true times, forecasts, decision, and the clairvoyant split beside it. "
            "Memory holds the record of every worker and iteration, so it is linear in either."
        ],
    )


def _run(workers: int, iterations: int, seed: int, *, traced: bool) -> tuple[float, float, float | None, float]:
    text = (
        f"seed = {seed}\nglobal_batch_size = {64 * workers}\niterations = {iterations}\n"
        f"[[workers]]\ncount = {workers}\n"
        "speed_samples_per_s = 100.0\nnoise = 0.05\nwander = {spread = 0.3, correlation = 50.0}\n"
    )
    if traced:
        tracemalloc.start()
    started = time.perf_counter()
    outcome = cluster_of(text).run(Balanced(policy=resolve_policy(POLICY))).outcome
    spent_s = time.perf_counter() - started
    peak = None
    if traced:
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
    assert outcome is not None
    return spent_s, 1e3 * spent_s / iterations, peak, outcome.efficiency
