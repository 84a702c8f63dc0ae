"""A process's resident memory on Linux, and what its cgroup, its limits and the machine leave it."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path

from lbbsp.integrations.torch.memory.base import Reading
from lbbsp.integrations.torch.memory.cgroup import cgroup_room_and_limit_bytes

__all__ = ["ResidentMemory"]


class ResidentMemory:
    """Resident memory, its high-water mark, and room to grow.

    The limit is what is resident plus the least of: the free memory of the cgroup and of each one above it, the
    machine's available memory (both shared with the other ranks of this host), and what ``RLIMIT_AS`` leaves.

    Args:
        ranks_here: ranks on this host, which share the memory; by default torchrun's ``LOCAL_WORLD_SIZE``, or 1.
        proc: where the kernel's process files are.
    """

    def __init__(self, *, ranks_here: int | None = None, proc: Path = Path("/proc")) -> None:
        self._ranks_here = ranks_here or int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._proc = proc

    @property
    def name(self) -> str:
        """The host's name and the size of its memory."""
        reading = self.read()
        size = f"{reading.total_bytes / 2**20:.0f} MiB" if reading else "unknown size"
        return f"{platform.node()} {size}"

    def read(self) -> Reading | None:
        """The kernel's figures; None where it is not Linux's."""
        try:
            own = _kilobytes(self._proc / "self/status")
            machine = _kilobytes(self._proc / "meminfo")
            held, peak, virtual = own["VmRSS"], own["VmHWM"], own["VmSize"]
            total, rooms = machine["MemTotal"], [machine["MemAvailable"] / self._ranks_here]
        except (OSError, KeyError, ValueError):
            return None
        room, limit = cgroup_room_and_limit_bytes(self._proc)
        rooms.append(room / self._ranks_here)
        rooms.append(_address_space_bytes() - virtual)
        return Reading(
            held_bytes=held,
            peak_bytes=peak,
            limit_bytes=held + max(0.0, min(rooms)),
            total_bytes=min(total, limit),
        )


def _address_space_bytes() -> float:
    """The limit of ``ulimit -v``."""
    import resource  # Unix alone has it

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return math.inf if soft == resource.RLIM_INFINITY else float(soft)


def _kilobytes(path: Path) -> dict[str, float]:
    """The ``Name:  123 kB`` lines of a file, in bytes."""
    found = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = float(words[0]) * 1024.0
    return found
