"""Machine usage of the Alibaba cluster trace of 2018, on a regular grid of time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lbbsp.core.arrays import FloatArray
from lbbsp.errors import ConfigurationError
from lbbsp.sim.traces._table import read_numbers, read_rows
from lbbsp.sim.traces.base import Trace, available

__all__ = ["read_alibaba2018"]

HEADER = ("machine_id", "time_stamp", "cpu", "mem", "mem_gps", "mkpi", "net_in", "net_out", "disk")


def read_alibaba2018(path: Path, *, every_s: float = 60.0, longest_gap_s: float = 600.0) -> Trace:
    r"""The share of each machine's CPU that is free, as the speed of a worker on it.

    ``v = c = max(0.05, 1 - cpu / 100)``, ``m = 1 - mem / 100``.  The file's rows come in no order and some
    twice: they are sorted, and of rows of the same machine and second the last counts.  A machine's value holds
    until its next row; instants where that is further than ``longest_gap_s`` away are left out for all machines.
    Machines seen for less than nine tenths of the time are left out too.

    Args:
        path: ``machine_usage.csv``, gzipped or not, without a header.
        every_s: seconds an iteration.
        longest_gap_s: the longest time that a value holds.

    Raises:
        ConfigurationError: the file is broken, or a step of time is not positive.

    Source: Alibaba cluster-trace-v2018, machine_usage.
    """
    if not every_s > 0:
        raise ConfigurationError(f"every_s={every_s}: must be positive")
    rows = read_rows(path, ("machine_id", "time_stamp", "cpu", "mem"), header=HEADER)
    machine = np.array([row[0] for row in rows])
    t = read_numbers([row[1] for row in rows], path, "time_stamp")
    cpu = available(read_numbers([row[2] for row in rows], path, "cpu"), path)
    memory = available(read_numbers([row[3] for row in rows], path, "mem", blank=False), path)
    span = float(t.max() - t.min())
    series: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    for name in np.unique(machine):
        at = np.flatnonzero(machine == name)
        at = at[np.argsort(t[at], kind="stable")]
        last = np.append(np.diff(t[at]) > 0, True)
        at = at[last]
        if t[at[-1]] - t[at[0]] >= 0.9 * span:
            series.append((t[at], cpu[at], memory[at]))
    if not series:
        raise ConfigurationError(f"{path}: no machine is seen for nine tenths of the {span:g} s; give a longer extract")
    start, end = max(s[0][0] for s in series), min(s[0][-1] for s in series)
    grid = np.arange(start, end, every_s)
    held = [np.searchsorted(s[0], grid, side="right") - 1 for s in series]
    covered = np.all(
        [s[0][np.minimum(i + 1, s[0].size - 1)] - s[0][i] <= longest_gap_s for s, i in zip(series, held, strict=True)],
        axis=0,
    )
    c = np.stack([s[1][i] for s, i in zip(series, held, strict=True)], axis=1)[covered]
    m = np.stack([s[2][i] for s, i in zip(series, held, strict=True)], axis=1)[covered]
    return Trace(name="alibaba2018", speeds=c, cpu=c, memory=m, measured=False)
