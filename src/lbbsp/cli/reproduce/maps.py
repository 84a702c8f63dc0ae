"""Heterogeneity maps: when balancing helps, and when it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np

from lbbsp.cli.reproduce.section import Context, Section
from lbbsp.core.policy import resolve_policy
from lbbsp.core.time_models import AffineTimes
from lbbsp.core.types import FloatArray
from lbbsp.sim.schemes import Balanced, Bsp, Job, Oracle
from lbbsp.sim.truth import ModelTruth, wandering

__all__ = ["maps"]

SPREADS = (0.05, 0.1, 0.2, 0.4, 0.8)
CORRELATIONS = (1, 3, 10, 30, 100, 300)
NOISES = (0.0, 0.05, 0.2)
WORKERS = 16


def maps(context: Context) -> Section:
    """Speedup and efficiency against spread, correlation time and noise of the speeds."""
    iterations, auto = context.few(400, 30), resolve_policy("auto")
    rows: list[list[Any]] = []
    for noise in NOISES:
        for spread in SPREADS:
            context.say(f"maps: noise {noise:g}, spread {spread:g}")
            for correlation in CORRELATIONS:
                job = _job(iterations, spread, correlation, noise, context.seed)
                bsp, balanced, oracle = (s.run(job).batch_s for s in (Bsp(), Balanced(policy=auto), Oracle()))
                rows.append(
                    [
                        noise,
                        spread,
                        correlation,
                        bsp / balanced,
                        bsp / oracle,
                        oracle / balanced,
                    ]
                )
    return Section(
        name="maps",
        title="When balancing helps: spread, correlation time and noise of the speeds",
        columns=["noise", "spread", "correlation, iterations", "speedup", "bound", "efficiency"],
        rows=rows,
        draw=lambda axes: _draw(axes, rows),
        panels=len(NOISES),
        notes=[
            f"{WORKERS} workers; the logarithm of each speed wanders with the given standard deviation (spread) and "
            "correlation time; noise is a relative error of each single time that nobody can foresee. Balancing pays "
            "where speeds differ for longer than an iteration. Where they are drawn anew in each (correlation 1), what "
            "was slow is no guide to what will be, and the best to be had is the equal split. The oracle knows "
            "the speeds, not the noise.",
        ],
    )


def _job(iterations: int, spread: float, correlation: float, noise: float, seed: int) -> Job:
    zero = np.zeros(WORKERS)
    truth = ModelTruth(
        base=AffineTimes(zero, zero, zero + 0.01),
        availability=wandering(iterations, zero + spread, zero + correlation, seed=seed),
        noise=zero + noise,
        seed=seed,
    )
    return Job(truth=truth, global_batch_size=64 * WORKERS, iterations=iterations)


def _draw(axes: list[Any], rows: list[list[Any]]) -> None:
    for axis, noise in zip(axes, NOISES, strict=True):
        of = [row for row in rows if row[0] == noise]
        shape = (len(SPREADS), len(CORRELATIONS))
        speedup: FloatArray = np.array([row[3] for row in of]).reshape(shape)
        efficiency: FloatArray = np.array([row[5] for row in of]).reshape(shape)
        axis.imshow(np.log(speedup), origin="lower", cmap="RdYlGn", vmin=-1, vmax=1, aspect="auto")
        for (i, j), value in np.ndenumerate(speedup):
            axis.text(
                j,
                i,
                f"{value:.2f}x\n{efficiency[i, j]:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if value > 2 else "black",
            )
        axis.set_xticks(range(len(CORRELATIONS)), [str(c) for c in CORRELATIONS])
        axis.set_yticks(range(len(SPREADS)), [f"{s:g}" for s in SPREADS])
        axis.set_xlabel("correlation time, iterations")
        axis.set_ylabel("spread of the speeds")
        axis.set_title(f"noise {noise:g}: speedup, efficiency", fontsize=9)
