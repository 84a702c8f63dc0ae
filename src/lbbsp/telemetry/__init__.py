"""What a run did, as JSON lines: the schema, the sinks that write it and the readers.

Real and simulated runs write the same records; ``docs/telemetry.md`` documents every field.  Everything here
deals in plain numbers, and importing it needs no more than msgspec.
"""

from lbbsp.telemetry.follow import RunFollower
from lbbsp.telemetry.reader import Run, read_run
from lbbsp.telemetry.schema import SCHEMA, DecisionRecord, EventRecord, IterationRecord, Record, RunRecord
from lbbsp.telemetry.sinks import JsonlSink, ListSink, NullSink, Sink

__all__ = [
    "SCHEMA",
    "DecisionRecord",
    "EventRecord",
    "IterationRecord",
    "JsonlSink",
    "ListSink",
    "NullSink",
    "Record",
    "Run",
    "RunFollower",
    "RunRecord",
    "Sink",
    "read_run",
]
