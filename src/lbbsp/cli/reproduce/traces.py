"""The two recorded traces that the comparisons are run on, as matrices."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np

from lbbsp.core.types import FloatArray
from lbbsp.errors import ConfigurationError

__all__ = ["batch_speeds", "machines"]

PARTIAL = {"m_1932", "m_1947"}
STEP_S = 60


def machines(path: Path, steps: int) -> FloatArray:
    """Available CPU, ``max(0.05, 1 - cpu / 100)``, of the 14 machines that were there throughout, every 60 s.

    The last value is held; shape ``(steps, 14)``.

    Source: Alibaba cluster-trace-v2018, machine usage.
    """
    used: dict[str, dict[int, float]] = {}
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.reader(file):
            if row[0] not in PARTIAL and row[2]:
                used.setdefault(row[0], {})[int(row[1])] = float(row[2])
    at_s, columns = STEP_S * np.arange(steps), []
    for machine in sorted(used):
        times = np.array(sorted(used[machine]))
        if at_s[-1] > times[-1]:
            raise ConfigurationError(f"{path}: {machine} ends at {times[-1]} s, before step {steps}; take fewer steps")
        held = np.maximum(np.searchsorted(times, at_s, side="right") - 1, 0)
        columns.append([used[machine][int(times[i])] for i in held])
    return np.maximum(0.05, 1 - np.array(columns).T / 100)


def batch_speeds(path: Path) -> FloatArray:
    """Relative speeds, 1 / the mini-batch's time, of a job's workers where all were measured; shape ``(K, W)``.

    Source: Alibaba cluster-trace-gpu-v2020, mini-batch times of four production jobs.
    """
    times: dict[int, dict[int, float]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            times.setdefault(int(row["worker"]), {})[int(row["time"])] = float(row["batch_time_norm"])
    steps = sorted(set.intersection(*(set(column) for column in times.values())))
    return np.array([[1000.0 / times[worker][step] for worker in sorted(times)] for step in steps])
