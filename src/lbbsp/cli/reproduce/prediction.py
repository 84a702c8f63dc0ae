"""Predictors, and the sensitivity to window, lag and dead band, on shared CPU machines."""

from __future__ import annotations

from typing import Any

import numpy as np

from lbbsp.cli.reproduce.clusters import cpu_job, gpu_job
from lbbsp.cli.reproduce.schemes import policies
from lbbsp.cli.reproduce.section import Context, Section
from lbbsp.core.allocate import DeadBand
from lbbsp.core.policy import LeaderStraggler, Policy, Proportional
from lbbsp.core.predict import AdaptiveEma, Ema
from lbbsp.sim.bsp import Outcome
from lbbsp.sim.schemes import Balanced, Job

__all__ = ["predictors", "sensitivity"]


def _errors(outcome: Outcome) -> tuple[float, float]:
    """Root mean square of the forecasts' relative errors, and of the last value's, over the same iterations."""
    speeds = outcome.sizes / outcome.compute_s
    known = np.isfinite(outcome.forecasts[1:]) & (outcome.sizes[1:] > 0)
    now, before, forecast = (a[known] for a in (speeds[1:], speeds[:-1], outcome.forecasts[1:]))
    return tuple(float(np.sqrt(np.mean((f / now - 1) ** 2))) for f in (forecast, before))  # type: ignore[return-value]


def predictors(context: Context) -> Section:
    """How well each policy's predictor foretells, and what comes of it."""
    job, source = cpu_job(context, context.few(1500, 60), mixed=True)
    rows: list[list[Any]] = []
    for scheme in policies():
        context.say(f"predictors: {scheme.name}")
        outcome = scheme.run(job).outcome
        if outcome is None or np.isnan(outcome.forecasts[1:]).all():
            continue
        error, last = _errors(outcome)
        predictor = scheme.policy.predictor if isinstance(scheme, Balanced) else None
        rows.append([scheme.name, type(predictor).__name__, error, error / last, outcome.efficiency])
    return Section(
        name="predictors",
        title="Predictors, one iteration ahead",
        columns=["policy", "predictor", "RMS relative error", "of the last value's", "efficiency"],
        rows=rows,
        draw=lambda axes: _dots(axes[0], rows),
        notes=[f"{source}, 8 machines of several types, {job.iterations} iterations."],
    )


def _dots(axis: Any, rows: list[list[Any]]) -> None:
    for name, _, _, ratio, efficiency in rows:
        axis.plot(ratio, efficiency, "o")
        axis.annotate(name, (ratio, efficiency), fontsize=7, xytext=(4, 4), textcoords="offset points")
    axis.set_xlabel("RMS error, of the last value's")
    axis.set_ylabel("efficiency against the clairvoyant split")


def _one(job: Job, policy: Policy[Any], *, lag: int = 1, min_gain: float = 0.02) -> Outcome:
    run = Balanced(policy=policy, lag=lag, dead_band=DeadBand(min_gain=min_gain)).run(job)
    assert run.outcome is not None
    return run.outcome


def sensitivity(context: Context) -> Section:
    """Efficiency and moves against each setting, the others at their defaults."""
    job, source = cpu_job(context, context.few(1000, 60), mixed=True)
    courses: dict[str, list[tuple[float, Outcome]]] = {
        "lag L, iterations": [(lag, _one(job, Proportional(), lag=lag)) for lag in (1, 2, 3, 4, 6, 8)],
        "dead band, least gain": [
            (gain, _one(job, Proportional(), min_gain=gain)) for gain in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
        ],
        "window, iterations": [
            (window, _one(job, Proportional(predictor=Ema(alpha=2 / (window + 1)))))
            for window in (1, 2, 3, 5, 10, 20, 50)
        ],
        "adaptive memory, iterations": [
            (memory, _one(job, Proportional(predictor=AdaptiveEma(memory=1 - 1 / memory))))
            for memory in (5, 20, 50, 100, 500)
        ],
    }
    gpus, profiles = gpu_job(context, context.few(300, 40), with_t4=False)
    courses["leader-straggler's window, GPUs"] = [
        (window, _one(gpus, LeaderStraggler(window=window, longest=max(16, window)))) for window in (1, 2, 4, 8, 16)
    ]
    rows = [
        [setting, value, outcome.efficiency, outcome.moves / len(outcome.iteration_s)]
        for setting, course in courses.items()
        for value, outcome in course
    ]

    def draw(axes: list[Any]) -> None:
        for axis, (setting, course) in zip(axes, courses.items(), strict=True):
            values = [value for value, _ in course]
            axis.plot(values, [o.efficiency for _, o in course], "o-", color="#c0392b", label="efficiency")
            axis.plot(
                values,
                [o.moves / len(o.iteration_s) for _, o in course],
                "s--",
                color="#7f8c8d",
                label="moves an iteration",
            )
            axis.set_xlabel(setting)
            axis.set_ylim(0, 1.05)
            axis.legend(fontsize=8)

    return Section(
        name="sensitivity",
        title="Sensitivity to lag, dead band and window",
        columns=["setting", "value", "efficiency", "moves an iteration"],
        rows=rows,
        draw=draw,
        panels=5,
        notes=[
            f"{source}, 8 machines of several types, {job.iterations} iterations. Window n is an exponential average "
            "with weight 2 / (n + 1); the adaptive memory is how long the bank of averages is judged by its errors.",
            f"The GPUs: {profiles}, {gpus.iterations} iterations.",
        ],
    )
