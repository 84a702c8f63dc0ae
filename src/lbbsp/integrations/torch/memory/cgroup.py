"""What a process's memory cgroup, and those above it, leave free: cgroup v2 and v1."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

from lbbsp.telemetry.sensors.cgroup import numbers, own_group, words

__all__ = ["cgroup_room_and_limit_bytes"]

_NO_LIMIT_BYTES = 1 << 60  # version 1 says "none" by a number near 2**63
_NAMES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def cgroup_room_and_limit_bytes(proc: Path = Path("/proc")) -> tuple[float, float]:
    """The least free memory and the least limit among this process's cgroups; infinite where there is none.

    Pages of files that have not been used lately count as free: the kernel drops them first.

    Args:
        proc: where the kernel's process files are.

    Source: the kernel's documentation, "Control Group v2" (memory.max, memory.current, memory.stat) and "Memory
    Resource Controller" (version 1).
    """
    group = None
    with contextlib.suppress(OSError, ValueError):
        group = own_group("memory", proc / "self")
    if group is None:
        return math.inf, math.inf
    limit_name, usage_name, inactive_name = _NAMES[group.version]
    room = least = math.inf
    for folder in group.upwards():
        limit, usage = words(folder / limit_name), words(folder / usage_name)
        if not (limit and usage and limit[0].isdigit() and usage[0].isdigit()) or int(limit[0]) >= _NO_LIMIT_BYTES:
            continue
        held = int(usage[0]) - numbers(folder / "memory.stat").get(inactive_name, 0)
        room, least = min(room, float(int(limit[0]) - held)), min(least, float(limit[0]))
    return room, least
