"""Available CPU c_i: what part of the cores that it may use a worker could have."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

from lbbsp.telemetry.sensors.cgroup import OwnGroup, own_group, words

__all__ = ["AvailableCpu"]

LEAST = 0.05
"""c_i is never below it: also a worker among many others gets something."""


class AvailableCpu:
    r"""c_i, a fraction of the cores that this process may run on, since the reading before.

        c_i = min(quota, cores - others) / cores,     never below 0.05

    ``cores`` are those of the process's affinity; ``quota`` (cores) is the least CPU quota of its cgroup and those
    above it; ``others`` is how many of the cores other processes kept busy: what ``/proc/stat`` counts as busy
    or stolen by the host, less the CPU time of this process and of its children while they live.

    Where ``/proc/stat`` cannot be read (no Linux), ``others`` comes from the load average; where cgroups cannot,
    there is no quota.  No rights are needed.

    Args:
        root: where ``/proc`` and ``/sys`` are; another directory serves tests.
        clock: seconds, monotonic.
        own_s: CPU seconds of this process and its children so far.
    """

    unit = "fraction of the cores that the process may run on"

    def __init__(
        self,
        *,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
        own_s: Callable[[], float] | None = None,
        cores: frozenset[int] | None = None,
    ) -> None:
        self._root, self._clock = root, clock
        self._own_s = own_s or _own_cpu_s
        self._cores = cores if cores is not None else _affinity()
        self._group: OwnGroup | None = None
        with contextlib.suppress(OSError, ValueError):
            self._group = own_group("cpu", root / "proc" / "self")
        self._before = (self._clock(), self._busy_s(), self._own_s())

    def quota(self) -> float:
        """The CPU quota in cores, of this group or one above it; infinity where there is none."""
        if self._group is None:
            return math.inf
        return min((_quota(path, self._group.version) for path in self._group.upwards()), default=math.inf)

    def throttled_s(self) -> float:
        """Seconds for which the group has been held back by its quota so far; NaN where that is not counted."""
        if self._group is None:
            return math.nan
        pairs = words(self._group.directory / "cpu.stat")
        stat = dict(zip(pairs[::2], pairs[1::2], strict=False))
        with contextlib.suppress(KeyError, ValueError):
            return (
                float(stat["throttled_usec"]) / 1e6 if self._group.version == 2 else float(stat["throttled_time"]) / 1e9
            )
        return math.nan

    def read(self) -> float:
        """c_i since the reading before; NaN if no time has passed."""
        now_s, busy_s, own_s = self._clock(), self._busy_s(), self._own_s()
        passed_s, self._before, before = now_s - self._before[0], (now_s, busy_s, own_s), self._before
        if passed_s <= 0:
            return math.nan
        cores = len(self._cores)
        if math.isnan(busy_s) or math.isnan(before[1]):
            others = _load() - (own_s - before[2]) / passed_s
        else:
            others = (busy_s - before[1] - (own_s - before[2])) / passed_s
        free = cores - min(max(others, 0.0), float(cores))
        return min(1.0, max(LEAST, min(self.quota(), free) / cores))

    def _busy_s(self) -> float:
        """CPU seconds that the process's cores have been busy or stolen; NaN where not counted."""
        tick_s, total, seen = 1.0 / _ticks_per_s(), 0.0, 0
        for line in _lines(self._root / "proc" / "stat"):
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in self._cores:
                user, nice, system, _idle, _iowait, irq, softirq, *steal = (int(f) for f in fields[:8])
                total += (user + nice + system + irq + softirq + sum(steal)) * tick_s
                seen += 1
        return total if seen else math.nan


def _quota(path: Path, version: int) -> float:
    """Cores that a group may use."""
    with contextlib.suppress(ValueError, IndexError, ZeroDivisionError):
        if version == 2:
            quota, period = words(path / "cpu.max")
            return math.inf if quota == "max" else int(quota) / int(period)
        quota = words(path / "cpu.cfs_quota_us")[0]
        return math.inf if int(quota) < 0 else int(quota) / int(words(path / "cpu.cfs_period_us")[0])
    return math.inf


def _own_cpu_s() -> float:
    """CPU seconds of this process, and of its children that live (loader workers)."""
    total = sum(os.times()[:4])
    pid = os.getpid()
    with contextlib.suppress(OSError):
        for task in os.scandir(f"/proc/{pid}/task"):
            for child in words(Path(task.path) / "children"):
                with contextlib.suppress(OSError, IndexError, ValueError):
                    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                    total += (int(fields[11]) + int(fields[12])) / _ticks_per_s()
    return total


def _affinity() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _ticks_per_s() -> int:
    return os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def _load() -> float:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
