"""Available memory m_i: what part of the memory that it may use a worker could still have."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

from lbbsp.telemetry.sensors.cgroup import OwnGroup, numbers, own_group, words

__all__ = ["AvailableMemory"]

_NO_LIMIT_BYTES = 1 << 60  # version 1 says "none" by the largest number that is a multiple of a page


class AvailableMemory:
    """m_i, a fraction: the least of what the machine and each cgroup limit above this process leave.

    The machine's is ``MemAvailable / MemTotal`` of ``/proc/meminfo``; a cgroup's is
    ``(limit - usage + inactive file cache) / limit``, for the kernel drops that cache when memory gets short.
    Where neither can be read it is NaN.  No rights are needed.

    Args:
        root: where ``/proc`` and ``/sys`` are; another directory serves tests.
    """

    unit = "fraction of the memory that the process may use"

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._root = root
        self._group: OwnGroup | None = None
        with contextlib.suppress(OSError, ValueError):
            self._group = own_group("memory", root / "proc" / "self")

    def read(self) -> float:
        """m_i now; NaN where unknown."""
        known = [fraction for fraction in (self._machine(), *self._groups()) if not math.isnan(fraction)]
        return min(known, default=math.nan)

    def limit_bytes(self) -> float:
        """The least of the machine's memory and the limits of the cgroups; infinity where unknown."""
        total = self._meminfo().get("MemTotal", math.inf)
        return min(total, *self._limits()) if self._group else total

    def _meminfo(self) -> dict[str, float]:
        try:
            lines = (self._root / "proc" / "meminfo").read_text().splitlines()
        except OSError:
            return {}
        rows = (line.split() for line in lines)
        return {row[0].rstrip(":"): 1024.0 * int(row[1]) for row in rows if len(row) >= 2 and row[1].isdigit()}

    def _machine(self) -> float:
        meminfo = self._meminfo()
        total, available = meminfo.get("MemTotal", 0.0), meminfo.get("MemAvailable", math.nan)
        return available / total if total > 0 else math.nan

    def _limits(self) -> list[float]:
        assert self._group is not None
        name = "memory.max" if self._group.version == 2 else "memory.limit_in_bytes"
        return [_bytes(words(path / name)) for path in self._group.upwards()]

    def _groups(self) -> list[float]:
        if self._group is None:
            return []
        usage_name = "memory.current" if self._group.version == 2 else "memory.usage_in_bytes"
        cache_name = "inactive_file" if self._group.version == 2 else "total_inactive_file"
        fractions = []
        for path, limit in zip(self._group.upwards(), self._limits(), strict=True):
            usage = _bytes(words(path / usage_name))
            if 0 < limit < math.inf and usage < math.inf:
                used = max(0.0, usage - numbers(path / "memory.stat").get(cache_name, 0))
                fractions.append(max(0.0, 1.0 - used / limit))
        return fractions


def _bytes(content: list[str]) -> float:
    """A number of bytes; infinity for "max", for version 1's "none", and where there is no file."""
    if not content or not content[0].isdigit() or int(content[0]) >= _NO_LIMIT_BYTES:
        return math.inf
    return float(content[0])
