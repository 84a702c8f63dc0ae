"""The records of a run, one JSON object a line; the key ``type`` names the kind.

Conventions, so that every line is valid JSON and can be read for years:

- units stand in the names: ``_s`` seconds, ``_samples_per_s`` speeds; sizes are samples;
- what was not measured is ``null``; NaN and the infinities, which JSON lacks, are written as ``null`` too;
- codes (``mode``, ``reason``, ``name``, ``policy``) are open sets of strings: a reader must expect new ones;
- `SCHEMA` rises only when a field changes its meaning or goes.  New fields (always with a default) and new
  types of record come without: a reader ignores fields, and skips records, that it does not know.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "SCHEMA",
    "DecisionRecord",
    "EventRecord",
    "IterationRecord",
    "Record",
    "RunRecord",
    "decode",
    "encode",
]

SCHEMA = 1
"""The version of the schema that this module writes, and the newest that it reads."""


class RunRecord(msgspec.Struct, tag_field="type", tag="run", frozen=True, kw_only=True):
    """What was run: the first line of every file, and again where a restarted run goes on in the same file.

    Args:
        run: the run's name, the same on all ranks.
        version: of lbbsp.
        rank: the worker that writes this file, 0..W-1.
        workers: W.
        global_batch_size: X, samples.
        policy: the policy's name.
        lag: L, iterations between a report and the sizes that it decides.
        started_at: when this rank started, ISO 8601 in UTC; ``at_s`` of the other records counts from here.
        machine: what the rank runs on, e.g. ``platform``, ``cpu_model``, ``torch``.
        mode: ``balanced``, ``observe`` (measured and proposed, never moved) or ``plain`` (no balancer).
        settings: the balancer's other settings.
        part: counts the files of this rank; more than 0 where older parts were rotated away.
        schema: the schema's version.
    """

    run: str
    version: str
    rank: int
    workers: int
    global_batch_size: int
    policy: str
    lag: int
    started_at: str
    machine: dict[str, str] = {}
    mode: str = "balanced"
    settings: dict[str, Any] = {}
    part: int = 0
    schema: int = SCHEMA


class IterationRecord(msgspec.Struct, tag_field="type", tag="iteration", frozen=True, kw_only=True):
    """One iteration on one rank.

    Args:
        rank: i.
        iteration: k, counted over all epochs.
        epoch: the epoch.
        size: x_i, samples of this rank; 0 if it was idle.
        total: samples over all ranks: X, or fewer in an epoch's last iteration.
        compute_s: t_i, local compute, including ``input_s``, never a wait for other ranks.
        wait_s: the wait for other ranks.
        step_s: the whole iteration, from boundary to boundary.
        input_s: the part of ``compute_s`` spent waiting for input data.
        at_s: the iteration's end, since the run's start on this rank.
        loss: mean loss of this rank's samples.
        cpu: c_i, available CPU, fraction.
        memory: m_i, available memory, fraction.
    """

    rank: int
    iteration: int
    epoch: int
    size: int
    total: int
    compute_s: float | None
    wait_s: float | None
    step_s: float | None
    input_s: float | None
    at_s: float | None
    loss: float | None = None
    cpu: float | None = None
    memory: float | None = None


class DecisionRecord(msgspec.Struct, tag_field="type", tag="decision", frozen=True, kw_only=True):
    """One decision; all ranks decide alike, so rank 0 alone writes it.  Lists have one entry a worker.

    Args:
        iteration: the first iteration that the sizes hold for.
        decided_at: the iteration whose reports were used.
        sizes: x_i, samples.
        reason: a code: why the sizes moved or stayed.
        detail: the same as a sentence with its numbers.
        forecast_samples_per_s: forecast speeds.
        spread_samples_per_s: standard deviations of the forecasts' errors.
        forecast_error: ``(forecast - measured) / measured`` of the forecast made for ``decided_at``.
        expected_s: expected slowest compute time with these sizes.
        expected_before_s: the same with the sizes before.
        moved: whether the sizes differ from those before.
        fallbacks: unusable reports so far.
        report_every: iterations from ``decided_at`` to the next report.
        proposed: the sizes that the policy would have taken, moved to or not.
        proposed_s: expected slowest compute time with them.
    """

    iteration: int
    decided_at: int
    sizes: list[int]
    reason: str
    detail: str
    forecast_samples_per_s: list[float | None]
    spread_samples_per_s: list[float | None]
    forecast_error: list[float | None]
    expected_s: float | None
    expected_before_s: float | None
    moved: bool
    fallbacks: int
    report_every: int = 1
    proposed: list[int] | None = None
    proposed_s: float | None = None


class EventRecord(msgspec.Struct, tag_field="type", tag="event", frozen=True, kw_only=True):
    """Something that happened on a rank.

    Args:
        name: a code, e.g. ``resume``, ``epoch_end``, ``rank_lost``, ``out_of_memory``.
        rank: where.
        iteration: in which iteration.
        detail: a sentence with its numbers.
        at_s: when, since the run's start on this rank.
    """

    name: str
    rank: int
    iteration: int
    detail: str
    at_s: float | None


Record = RunRecord | IterationRecord | DecisionRecord | EventRecord


def _plain(value: object) -> object:
    """Numpy's and the frameworks' numbers and arrays as plain ones; anything else as its text."""
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) and not isinstance(value, type) else str(value)


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """The record as one line of JSON, ended by a newline."""
    return _encoder.encode(record) + b"\n"


def decode(line: bytes) -> Record:
    """The record on a line.

    Raises:
        msgspec.DecodeError: it is no JSON, or (``msgspec.ValidationError``) not a record of this schema.
    """
    return _decoder.decode(line)
