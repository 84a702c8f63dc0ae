"""The clusters of the comparisons: from recorded traces and measured profiles where they are given."""

from __future__ import annotations

import numpy as np

from lbbsp.cli.reproduce.section import Context
from lbbsp.core.time_models import AffineTimes
from lbbsp.core.types import Bounds, FloatArray
from lbbsp.sim.bsp import SpeedTruth
from lbbsp.sim.profiles import ProfileTruth, read_gavel, read_pollux
from lbbsp.sim.schemes import Job
from lbbsp.sim.truth import ModelTruth, wandering

__all__ = ["COMMUNICATION_S", "MESSAGE_S", "availability", "cpu_job", "gpu_job"]

COMMUNICATION_S = 0.02
MESSAGE_S = 0.001
BASES = np.array([1.0, 1.0, 1.0, 1.0, 1.4, 1.4, 0.7, 2.0])
"""Relative speeds of machine types in a mixed CPU cluster: repeated for more workers."""


def availability(context: Context, workers: int, iterations: int) -> tuple[FloatArray, str]:
    """Available CPU of shared machines, shape ``(K, W)``, and where it comes from."""
    trace = context.find("traces", "alibaba2018", "machine_usage.csv.gz")
    if trace is not None:
        from lbbsp.cli.reproduce.traces import machines

        return machines(trace, iterations)[:, :workers], "available CPU of shared machines, Alibaba 2018, 60 s a step"
    made = wandering(iterations, np.full(workers, 0.35), np.full(workers, 8.0), seed=context.seed)
    return np.clip(0.6 * made, 0.05, 1.0), "wandering speeds (no trace given)"


def cpu_job(context: Context, iterations: int, *, mixed: bool, workers: int = 8, x: int = 64) -> tuple[Job, str]:
    """Shared CPU machines, alike or of several types; times linear in the batch, about half a second an update."""
    share, source = availability(context, workers, iterations)
    base = np.resize(BASES, workers) if mixed else np.ones(workers)
    job = Job(
        truth=SpeedTruth(2.0 * x * base * share, cpu=share),
        global_batch_size=x * workers,
        iterations=iterations,
        communication_s=COMMUNICATION_S,
        message_s=MESSAGE_S,
    )
    return job, source


def gpu_job(context: Context, iterations: int, *, with_t4: bool, x: int = 64) -> tuple[Job, str]:
    """Eight GPUs of several generations training ResNet-50, 5% noise."""
    gavel, pollux = context.find("profiles", "gavel", "oracle_throughputs.json"), context.find("profiles", "pollux")
    kinds = (
        ["k80"] * 2 + ["p100"] * 2 + ["t4"] * 2 + ["v100"] * 2 if with_t4 else ["k80"] * 2 + ["p100"] * 3 + ["v100"] * 3
    )
    workers = len(kinds)
    if gavel is not None and (pollux is not None or not with_t4):
        known = dict(read_gavel(gavel).devices("ResNet-50"))
        source = "ResNet-50, measured by Gavel"
        if with_t4 and pollux is not None:
            known["t4"], source = read_pollux(pollux)["imagenet"], f"{source}; T4 by Pollux"
        profiled = ProfileTruth([known[kind] for kind in kinds], noise=0.05, seed=context.seed)
        bounds = profiled.bounds()
        truth: ProfileTruth | ModelTruth = profiled
    else:
        pace = {"k80": 1 / 50, "p100": 1 / 150, "t4": 1 / 130, "v100": 1 / 320}
        zero = np.zeros(workers)
        affine = AffineTimes(zero + 0.08, zero + 0.02, np.array([pace[kind] for kind in kinds]))
        truth = ModelTruth(base=affine, noise=np.full(workers, 0.05), seed=context.seed)
        bounds = Bounds(np.ones(workers, dtype=np.int64), np.full(workers, 4 * x))
        source = "made-up time models (no profiles given)"
    job = Job(
        truth=truth,
        global_batch_size=x * workers,
        iterations=iterations,
        bounds=bounds,
        communication_s=COMMUNICATION_S,
        message_s=MESSAGE_S,
    )
    return job, source
