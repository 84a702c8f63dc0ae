"""Reader of the Pollux profiles: step times of six jobs on a T4, by local batch.

Source: A. Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021; the
files ``<job>-placements.csv`` of petuum/adaptdl, Apache-2.0.
"""

from __future__ import annotations

import csv
from pathlib import Path

from lbbsp.errors import ConfigurationError
from lbbsp.sim.profiles.profile import Profile

__all__ = ["read_pollux"]

_COLUMNS = ("placement", "local_bsz", "step_time", "sync_time")
_ENDING = "-placements.csv"


def read_pollux(folder: Path) -> dict[str, Profile]:
    """Profiles of single GPUs (placement 1) by job; the time is ``step_time - sync_time``, the local compute.

    Args:
        folder: with the files ``<job>-placements.csv``.

    Raises:
        ConfigurationError: there is no such file, or one lacks columns, numbers or the placement 1; the message
            names file and line.
    """
    files = sorted(folder.glob(f"*{_ENDING}"))
    if not files:
        raise ConfigurationError(
            f"{folder}: holds no file named <job>{_ENDING}; give the folder of the Pollux profiles"
        )
    return {name: _read(file, name) for file in files for name in [file.name.removesuffix(_ENDING)]}


def _read(file: Path, job: str) -> Profile:
    times: dict[int, float] = {}
    with file.open(newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines)
        missing = [column for column in _COLUMNS if column not in (rows.fieldnames or ())]
        if missing:
            raise ConfigurationError(f"{file}: lacks {', '.join(missing)}; its first line must name {_COLUMNS}")
        for row in rows:
            if row["placement"] != "1":
                continue
            try:
                times[int(row["local_bsz"])] = float(row["step_time"]) - float(row["sync_time"])
            except (TypeError, ValueError) as error:
                raise ConfigurationError(f"{file}, line {rows.line_num}: {error}") from error
    sizes = sorted(times)
    return Profile(job, "t4", sizes, [times[x] for x in sizes])
