"""Mini-batch times of a production training job in the Alibaba PAI trace of 2020."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lbbsp.errors import ConfigurationError
from lbbsp.sim.traces._table import read_numbers, read_rows
from lbbsp.sim.traces.base import Trace

__all__ = ["read_pai"]

EVERY = 10
"""Steps from one record to the next."""


def read_pai(path: Path) -> Trace:
    """Relative speeds ``1 / batch_time_norm`` of the job's workers, one iteration for each recorded step.

    Every tenth step was recorded.  Where a worker has no row for one, its last holds; steps that not all workers
    have reached, and those after the first has ended, are left out.

    Args:
        path: a file with the columns ``worker``, ``time``, ``batch_time_norm``.

    Raises:
        ConfigurationError: the file is broken, a time is not positive, or a worker's rows go back in time.

    Source: Alibaba cluster-trace-gpu-v2020, mini-batch-time (CC-BY-4.0).
    """
    rows = read_rows(path, ("worker", "time", "batch_time_norm"))
    worker = read_numbers([row[0] for row in rows], path, "worker")
    time = read_numbers([row[1] for row in rows], path, "time")
    seconds = read_numbers([row[2] for row in rows], path, "batch_time_norm")
    if not (seconds > 0).all():
        raise ConfigurationError(f"{path}: batch_time_norm is 0 in row {int(seconds.argmin()) + 1}; must be positive")
    names, courses = np.unique(worker), []
    for name in names:
        at = np.flatnonzero(worker == name)
        same = np.append(False, (np.diff(time[at]) == 0) & (np.diff(seconds[at]) == 0))
        at = at[~same]  # a row recorded twice counts once
        back = np.flatnonzero(np.diff(time[at]) <= 0)
        if back.size:
            n = int(at[back[0] + 1])
            raise ConfigurationError(
                f"{path}: worker {name:g}'s time {time[n]:g} does not come after the one before (row {n + 1} of the "
                "data); sort the rows and keep one of each time"
            )
        courses.append((time[at], 1.0 / seconds[at]))
    start, end = max(t[0] for t, _ in courses), min(t[-1] for t, _ in courses)
    if end <= start:
        raise ConfigurationError(f"{path}: at no time are all {names.size} workers there; leave some out")
    grid = np.arange(start, end + 1, EVERY)
    speeds = np.stack([v[np.searchsorted(t, grid, side="right") - 1] for t, v in courses], axis=1)
    unknown = np.full(speeds.shape, np.nan)
    name = path.name.removesuffix(".csv").removesuffix("_norm")
    return Trace(name=f"pai-{name}", speeds=speeds, cpu=unknown, memory=unknown, measured=True)
