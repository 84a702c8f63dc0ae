"""CPU utilisation of EC2 machines in the Numenta anomaly benchmark."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np

from lbbsp.errors import ConfigurationError
from lbbsp.sim.traces._table import read_numbers, read_rows
from lbbsp.sim.traces.base import Trace, available

__all__ = ["read_nab"]


def read_nab(folder: Path) -> Trace:
    """The free share of each machine's CPU, as the speed of a worker on it; one file a machine.

    The machines were recorded at different times, so they are laid beside each other from their first rows on
    and cut to the shortest.

    Args:
        folder: with files ``ec2_cpu_utilization_*.csv`` of the columns ``timestamp``, ``value`` (percent).

    Raises:
        ConfigurationError: there is no such file, one is broken, or its times do not ascend.

    Source: numenta/NAB, data/realAWSCloudWatch (MIT).
    """
    paths = sorted(folder.glob("ec2_cpu_utilization_*.csv"))
    if not paths:
        raise ConfigurationError(f"{folder}: no file ec2_cpu_utilization_*.csv in it")
    columns = []
    for path in paths:
        rows = read_rows(path, ("timestamp", "value"))
        before: datetime | None = None
        for n, (stamp, _) in enumerate(rows, start=1):
            try:
                at = datetime.fromisoformat(stamp)
            except ValueError as error:
                raise ConfigurationError(f"{path}: row {n} of the data: {stamp!r} is no time; use ISO 8601") from error
            if before is not None and at <= before:
                raise ConfigurationError(
                    f"{path}: row {n} of the data: {at} does not come after {before}; sort the rows, once each"
                )
            before = at
        columns.append(available(read_numbers([row[1] for row in rows], path, "value"), path))
    length = min(column.size for column in columns)
    c = np.stack([column[:length] for column in columns], axis=1)
    return Trace(name="nab", speeds=c, cpu=c, memory=np.full(c.shape, np.nan), measured=False)
