"""Readers of recorded speeds: one a format, each giving a `Trace`."""

from lbbsp.sim.traces.alibaba import read_alibaba2018
from lbbsp.sim.traces.base import Trace
from lbbsp.sim.traces.find import find_traces
from lbbsp.sim.traces.generic import read_csv
from lbbsp.sim.traces.nab import read_nab
from lbbsp.sim.traces.pai import read_pai

__all__ = ["Trace", "find_traces", "read_alibaba2018", "read_csv", "read_nab", "read_pai"]
