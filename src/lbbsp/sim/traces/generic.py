"""A CSV file of anybody's own measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lbbsp.errors import ConfigurationError
from lbbsp.sim.traces._table import read_numbers, read_rows
from lbbsp.sim.traces.base import Trace

__all__ = ["read_csv"]

LARGEST_RATIO = 500.0
"""Slowest over fastest speed of a worker, beyond which seconds and milliseconds were surely mixed."""


def read_csv(path: Path) -> Trace:
    """Speeds ``size / compute_s`` of a file with the columns below, one row for each iteration of each worker.

    ``iteration`` and ``worker`` are whole numbers, ``size`` is in samples, ``compute_s`` in seconds, ``cpu`` and
    ``memory`` are the available shares before the iteration, between 0 and 1, empty where unknown.

    Args:
        path: the file, gzipped or not.

    Raises:
        ConfigurationError: the file is broken: cut short, a column or row missing, times that do not ascend,
            a number that is NaN or negative, shares in percent, or seconds mixed with milliseconds.
    """
    columns = ("iteration", "worker", "size", "compute_s", "cpu", "memory")
    rows = read_rows(path, columns)
    k, i, size, seconds, cpu, memory = (
        read_numbers([row[n] for row in rows], path, name, blank=name in ("cpu", "memory"))
        for n, name in enumerate(columns)
    )
    for name, values in (("size", size), ("compute_s", seconds)):
        if not (values > 0).all():
            raise ConfigurationError(f"{path}: {name} is 0 in row {int(values.argmin()) + 1} of the data; leave it out")
    for name, values in (("cpu", cpu), ("memory", memory)):
        if (values > 1).any():
            n = int(np.nanargmax(values))
            raise ConfigurationError(
                f"{path}: {name} is {values[n]:g} in row {n + 1} of the data; give shares between 0 and 1, not percent"
            )
    iterations, workers = np.unique(k), np.unique(i)
    at_k, at_i = np.searchsorted(iterations, k), np.searchsorted(workers, i)
    for worker in workers:
        back = np.flatnonzero(np.diff(k[i == worker]) <= 0)
        if back.size:
            raise ConfigurationError(
                f"{path}: worker {worker:g}'s iteration {k[i == worker][back[0] + 1]:g} does not come after the one "
                "before; sort the rows and keep one of each"
            )
    if k.size != iterations.size * workers.size:
        raise ConfigurationError(
            f"{path}: {k.size} rows for {iterations.size} iterations of {workers.size} workers; give one row each"
        )
    grids = [np.empty((iterations.size, workers.size)) for _ in range(3)]
    for grid, values in zip(grids, (size / seconds, cpu, memory), strict=True):
        grid[at_k, at_i] = values
    speeds = grids[0]
    ratio = speeds.max(axis=0) / speeds.min(axis=0)
    if ratio.max() > LARGEST_RATIO:
        raise ConfigurationError(
            f"{path}: worker {workers[int(ratio.argmax())]:g}'s speeds differ by a factor of {ratio.max():.3g}, over "
            f"{LARGEST_RATIO:g}; are seconds and milliseconds mixed?"
        )
    return Trace(name=path.name.split(".")[0], speeds=speeds, cpu=grids[1], memory=grids[2], measured=True)
