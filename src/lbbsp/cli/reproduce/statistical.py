"""Statistical efficiency and time to target: real gradients on real data under each scheme's clock."""

from __future__ import annotations

from typing import Any

import numpy as np

from lbbsp.cli.reproduce.clusters import cpu_job, gpu_job
from lbbsp.cli.reproduce.hardware import PAPER_CPU, PAPER_GPU
from lbbsp.cli.reproduce.section import Context, Section
from lbbsp.sim.schemes import Job, resolve_scheme
from lbbsp.sim.training import Curve, LinearTask, MlpTask, Task, digits, libsvm, train

__all__ = ["statistical"]

SCHEMES = ["bsp", "lb-bsp/auto", "static", "backup-1", "ssp-3", "asp", "oracle"]
DIVISIBLE = ["flexrr", "flexrr-3"]
MOMENTUM = 0.9
SAME = 1e-6


def tasks(context: Context) -> list[tuple[Task, tuple[float, float], tuple[float, ...]]]:
    """Tasks, with the held-out loss and accuracy to reach and the rates to choose from."""
    found: list[tuple[Task, tuple[float, float], tuple[float, ...]]] = [
        (MlpTask(split=digits()), (0.2, 0.95), (0.1, 0.2, 0.3))
    ]
    a9a = context.find("datasets", "a9a.libsvm.gz")
    if a9a is not None:
        split = libsvm(a9a)
        found.append((LinearTask(split=split), (0.335, 0.845), (0.05, 0.15, 0.4)))
        found.append((LinearTask(split=split, kind="svm"), (0.217, 0.845), (0.01, 0.03, 0.08)))
    return found


def statistical(context: Context) -> Section:
    """Every scheme's course on every task and cluster, at BSP's best rate and at its own."""
    iterations = context.few(120, 15)
    clusters = [
        ("shared CPU machines, mixed", cpu_job(context, iterations, mixed=True)[0], PAPER_CPU, SCHEMES + DIVISIBLE),
        ("2 K80, 3 P100, 3 V100", gpu_job(context, iterations, with_t4=False)[0], PAPER_GPU, SCHEMES),
    ]
    rows: list[list[Any]] = []
    pictures: list[tuple[str, dict[str, Curve]]] = []
    furthest = 0.0
    reached = "; ".join(f"{task.name}: {loss:g}, accuracy {accuracy:g}" for task, (loss, accuracy), _ in tasks(context))
    for cluster, job, paper, schemes in clusters:
        for task, target, rates in tasks(context)[: 1 if context.short else None]:
            chosen = rates[:1] if context.short else rates
            courses = _courses(context, cluster, job, task, schemes, chosen)
            found, curves, difference = _compare(courses, [cluster, task.name], target, paper)
            rows += found
            furthest = max(furthest, difference)
            if not pictures or pictures[-1][0] != cluster:
                pictures.append((cluster, curves))
    return Section(
        name="statistical",
        title="Updates and time to a target: training in virtual time",
        columns=[
            "cluster",
            "task",
            "scheme",
            "updates to target, BSP's rate",
            "largest difference to BSP's loss",
            "updates to target, own best rate",
            "updates to accuracy, BSP's rate",
            "updates to accuracy, own best rate",
            "s to target, own best rate",
            "speedup",
            "paper's",
            "bound",
        ],
        rows=rows,
        draw=lambda axes: _draw(axes, pictures),
        panels=len(pictures),
        notes=[
            "An update is a global batch of samples; asynchronous schemes take it in parts, each going as far as its "
            f"samples. SGD with momentum {MOMENTUM}, float64, the same seeds. The target is a held-out loss "
            f"({reached}). Each scheme also had its own best rate of three. Empty: not reached within the run.",
            f"LB-BSP's loss differed from BSP's by {furthest:.1e} at most"
            + (": the curves coincide." if furthest <= SAME else f", more than {SAME:g}: they do NOT coincide."),
        ],
        figures={"lb_bsp_largest_difference": furthest},
    )


def _courses(
    context: Context, cluster: str, job: Job, task: Task, schemes: list[str], rates: tuple[float, ...]
) -> dict[str, list[Curve]]:
    """Each scheme's curves, one a rate."""
    curves: dict[str, list[Curve]] = {}
    for name in schemes:
        context.say(f"{cluster}, {task.name}: {name}")
        run = resolve_scheme(name).run(job)
        curves[name] = [train(run, task, rate=rate, momentum=MOMENTUM, seed=context.seed) for rate in rates]
    return curves


def _compare(
    curves: dict[str, list[Curve]], of_what: list[str], goal: tuple[float, float], paper: float
) -> tuple[list[list[Any]], dict[str, Curve], float]:
    """Rows, each scheme's curve at its best rate, and LB-BSP's largest difference to BSP."""
    target, accurate = goal
    best = {name: min(range(len(of)), key=lambda n: _or_never(of[n].seconds_to(target))) for name, of in curves.items()}
    bsp = curves["bsp"][best["bsp"]]
    bsp_s, oracle_s = bsp.seconds_to(target), curves["oracle"][best["oracle"]].seconds_to(target)
    rows, furthest = [], 0.0
    for name, of in curves.items():
        same, own = of[best["bsp"]], of[best[name]]
        points = min(same.loss.size, bsp.loss.size)
        difference = float(np.abs(same.loss[:points] - bsp.loss[:points]).max())
        if name == "lb-bsp/auto":
            furthest = difference
        seconds = own.seconds_to(target)
        rows.append(
            [
                *of_what,
                name,
                same.updates_to(target),
                difference,
                own.updates_to(target),
                same.updates_to_accuracy(accurate),
                own.updates_to_accuracy(accurate),
                seconds,
                bsp_s / seconds if bsp_s and seconds else None,
                paper if name == "lb-bsp/auto" else None,
                bsp_s / oracle_s if bsp_s and oracle_s else None,
            ]
        )
    return rows, {name: of[best[name]] for name, of in curves.items()}, furthest


def _or_never(seconds: float | None) -> float:
    return np.inf if seconds is None else seconds


def _draw(axes: list[Any], pictures: list[tuple[str, dict[str, Curve]]]) -> None:
    for axis, (cluster, curves) in zip(axes, pictures, strict=True):
        for name in [n for n in ("bsp", "lb-bsp/auto", "flexrr", "ssp-3", "asp") if n in curves]:
            curve = curves[name]
            axis.plot(curve.at_s, curve.accuracy, label=name, linewidth=1.4 if name.startswith("lb") else 0.9)
        axis.set_title(f"{cluster}: perceptron, digits", fontsize=9)
        axis.set_xlabel("simulated time, s")
        axis.set_ylabel("held-out accuracy")
        axis.set_ylim(0.5, 1.0)
        axis.legend(fontsize=8, loc="lower right")
