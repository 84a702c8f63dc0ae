"""The files of a recorded run: their names, and their lines as records.

Each rank writes ``rank-00000.jsonl``; when that is full it becomes ``rank-00000.1.jsonl`` (replacing the one
before) and a new one is begun.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import msgspec

from lbbsp.errors import TelemetryError
from lbbsp.telemetry.schema import SCHEMA, Record, RunRecord, decode

__all__ = ["Lines", "check_version", "file_of", "older_of", "ranks_in"]

_NAME = re.compile(r"rank-(\d{5,})(?:\.1)?\.jsonl")
_TYPES = {cls.__struct_config__.tag for cls in get_args(Record)}


def file_of(directory: Path, rank: int) -> Path:
    """Where ``rank`` writes."""
    return directory / f"rank-{rank:05d}.jsonl"


def older_of(path: Path) -> Path:
    """Where the part before ``path`` lies."""
    return path.with_suffix(".1.jsonl")


def ranks_in(directory: Path) -> list[int]:
    """The ranks that have a file in ``directory``, ascending."""
    names = (_NAME.fullmatch(entry.name) for entry in directory.iterdir())
    return sorted({int(name[1]) for name in names if name})


def check_version(path: Path, line: bytes) -> None:
    """Refuse a run record of a newer schema.

    Raises:
        TelemetryError: it names both versions.
    """
    raw = _untyped(line)
    if not isinstance(raw, dict) or raw.get("type") != "run":
        return
    version = raw.get("schema", 1)
    if isinstance(version, int) and version > SCHEMA:
        raise TelemetryError(
            f"{path} has schema {version} (written by lbbsp {raw.get('version', 'of an unknown version')}); "
            f"this lbbsp reads schema {SCHEMA} and older: upgrade lbbsp to read it"
        )


def _untyped(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None


@dataclass(slots=True)
class Lines:
    """Takes a file's bytes as they come and gives its records.

    Args:
        path: the file, for messages.
        number: lines taken so far.
        offset: bytes taken so far, always at the start of a line.
        skipped: records of unknown types among them.
        begun: whether the file's run record was among them.
    """

    path: Path
    number: int = 0
    offset: int = 0
    skipped: int = 0
    begun: bool = field(default=False)

    def feed(self, data: bytes) -> list[Record]:
        """The records on the ended lines of ``data``, those from ``offset``; the rest is not taken.

        Raises:
            TelemetryError: an ended line is broken; the message names file and line.
        """
        records = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            self.number += 1
            record = self._record(line)
            if record is not None:
                records.append(record)
        self.offset += len(data) - len(rest)
        return records

    def end(self, rest: bytes) -> list[Record] | None:
        """The record on a last line without its newline: none where it was empty, None where it was cut."""
        if not rest.strip():
            return []
        try:
            msgspec.json.decode(rest)
        except msgspec.DecodeError:
            return None
        self.number += 1
        record = self._record(rest)
        return [] if record is None else [record]

    def _record(self, line: bytes) -> Record | None:
        if not line.strip():
            return None
        try:
            record = decode(line)
        except msgspec.ValidationError as error:
            check_version(self.path, line)
            raw = _untyped(line)
            kind = raw.get("type") if isinstance(raw, dict) else None
            if not (self.begun and isinstance(kind, str) and kind not in _TYPES):
                raise TelemetryError(f"{self._here}: not a record of schema {SCHEMA}: {error}") from error
            self.skipped += 1
            return None
        except msgspec.DecodeError as error:
            raise TelemetryError(
                f"{self._here}: not JSON ({error}); only a file's last line may be cut. "
                "Remove the line to read the rest"
            ) from error
        if isinstance(record, RunRecord):
            if record.schema > SCHEMA:
                check_version(self.path, line)
            self.begun = True
        elif not self.begun:
            raise TelemetryError(
                f"{self._here}: a file must begin with a run record and this one begins with "
                f"{record.__struct_config__.tag!r}; its beginning is missing"
            )
        return record

    @property
    def _here(self) -> str:
        return f"{self.path}:{self.number}"
