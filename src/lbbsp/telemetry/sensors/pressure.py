"""CPU pressure: for what part of the time some task waited for a core (PSI)."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

from lbbsp.telemetry.sensors.cgroup import own_group

__all__ = ["CpuPressure"]


class CpuPressure:
    """The fraction of the last 10 s in which some task of this cgroup, or of the machine, waited for a core.

    Version 2 cgroups have their own file, ``cpu.pressure``; else the machine's ``/proc/pressure/cpu`` is read.
    A kernel without PSI gives NaN.

    Args:
        root: where ``/proc`` and ``/sys`` are; another directory serves tests.

    Source: Linux, Documentation/accounting/psi.rst.
    """

    unit = "fraction of the last 10 s"

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._files = [root / "proc" / "pressure" / "cpu"]
        with contextlib.suppress(OSError, ValueError):
            group = own_group("cpu", root / "proc" / "self")
            if group is not None and group.version == 2:
                self._files.insert(0, group.directory / "cpu.pressure")

    def read(self) -> float:
        """The fraction now; NaN where the kernel does not say."""
        for file in self._files:
            with contextlib.suppress(OSError, ValueError, IndexError):
                kind, average, *_ = file.read_text().splitlines()[0].split()
                if kind == "some" and average.startswith("avg10="):
                    return float(average.removeprefix("avg10=")) / 100.0
        return math.nan
