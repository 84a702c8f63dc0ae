"""Reader of the Gavel profiles: iterations per second of training jobs on K80, P100 and V100, alone and co-located.

Source: D. Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020;
``oracle_throughputs.json`` of stanford-futuredata/gavel, MIT licence.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from lbbsp.errors import ConfigurationError
from lbbsp.sim.profiles.profile import Profile

__all__ = ["Gavel", "read_gavel"]

_SIZED = re.compile(r"(?P<job>.+) \(batch size (?P<size>\d+)\)")
_ALONE = "null"


@dataclass(frozen=True, slots=True)
class Gavel:
    """What the file holds.

    Args:
        profiles: by job and device (``k80``, ``p100``, ``v100``), of jobs measured at two sizes or more.
        slowdowns: by job and device, the factors (>= 1) by which sharing the device with each of the other jobs
            lengthened a step; medians over the job's sizes would hide their range, so all are given.
    """

    profiles: dict[tuple[str, str], Profile]
    slowdowns: dict[tuple[str, str], tuple[float, ...]]

    def devices(self, job: str) -> dict[str, Profile]:
        """The profiles of ``job`` by device.

        Raises:
            ConfigurationError: there is no such job; the message lists those there are.
        """
        found = {device: profile for (name, device), profile in self.profiles.items() if name == job}
        if not found:
            raise ConfigurationError(f"no profile of job {job!r}; there are {sorted({j for j, _ in self.profiles})}")
        return found


def read_gavel(file: Path) -> Gavel:
    """Read ``oracle_throughputs.json``: device, then job, then ``null`` (alone) or another job: iterations/s.

    A rate of 0 means that it could not be run (memory); it is left out.

    Raises:
        ConfigurationError: the file is not there or has another shape; the message says where.
    """
    try:
        content = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read as the Gavel throughputs: {error}") from error
    points: dict[tuple[str, str], dict[int, float]] = {}
    slowdowns: dict[tuple[str, str], list[float]] = {}
    for device, jobs in _mapping(content, file, "the file").items():
        for label, rates in _mapping(jobs, file, device).items():
            sized = _SIZED.fullmatch(label)
            if sized is None:
                continue  # a job of one size only
            where, key = f"{device}, {label}", (sized["job"], device)
            rates = _mapping(rates, file, where)
            alone = _rate(rates.get(_ALONE), file, where)
            if alone == 0:
                continue
            points.setdefault(key, {})[int(sized["size"])] = 1.0 / alone
            for other, pair in rates.items():
                if other == _ALONE:
                    continue
                if not isinstance(pair, list) or len(pair) != 2:
                    raise ConfigurationError(f"{file}: {where} with {other}: {pair!r} is no pair of rates")
                shared = _rate(pair[0], file, f"{where} with {other}")
                if shared > 0:
                    slowdowns.setdefault(key, []).append(max(1.0, alone / shared))
    profiles = {
        (job, device): Profile(job, device, sorted(times), [times[x] for x in sorted(times)])
        for (job, device), times in points.items()
        if len(times) > 1
    }
    return Gavel(profiles, {key: tuple(sorted(slowdowns.get(key, ()))) for key in profiles})


def _mapping(value: Any, file: Path, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{file}: {where} must hold an object, not {type(value).__name__}")
    return value


def _rate(value: Any, file: Path, where: str) -> float:
    if not isinstance(value, int | float) or not (0 <= value < math.inf):
        raise ConfigurationError(f"{file}: {where}: {value!r} is no rate in iterations/s (0 or more)")
    return float(value)
