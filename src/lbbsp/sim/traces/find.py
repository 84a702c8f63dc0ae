"""All traces below a folder."""

from __future__ import annotations

from pathlib import Path

from lbbsp.errors import ConfigurationError
from lbbsp.sim.traces.alibaba import read_alibaba2018
from lbbsp.sim.traces.base import Trace
from lbbsp.sim.traces.generic import read_csv
from lbbsp.sim.traces.nab import read_nab
from lbbsp.sim.traces.pai import read_pai

__all__ = ["find_traces"]


def find_traces(folder: Path) -> list[Trace]:
    """Read ``alibaba2018/``, ``nab/``, ``pai/`` and ``recorded/`` (files for `read_csv`) as far as they are there.

    Raises:
        ConfigurationError: there is none, or one is broken.
    """
    traces = [read_alibaba2018(path) for path in sorted((folder / "alibaba2018").glob("machine_usage.csv*"))]
    if (folder / "nab").is_dir():
        traces.append(read_nab(folder / "nab"))
    traces += [read_pai(path) for path in sorted((folder / "pai").glob("job_*.csv"))]
    traces += [read_csv(path) for path in sorted((folder / "recorded").glob("*.csv*"))]
    if not traces:
        raise ConfigurationError(
            f"{folder}: no traces in it; it needs alibaba2018/machine_usage.csv.gz, nab/ec2_cpu_utilization_*.csv, "
            "pai/job_*.csv or recorded/*.csv"
        )
    return traces
