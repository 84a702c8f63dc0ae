"""Where records go: a file a rank, a list, or nowhere."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from msgspec.structs import replace

from lbbsp.errors import ConfigurationError, TelemetryError
from lbbsp.telemetry._files import file_of, older_of
from lbbsp.telemetry._part import Part, continued, run_record_of
from lbbsp.telemetry.schema import Record, RunRecord, encode

__all__ = ["JsonlSink", "ListSink", "NullSink", "Sink"]

MIB = 2**20
_MOST_PARTS = 10**12
_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)


class Sink(Protocol):
    """Takes records; never raises because of where they go."""

    def write(self, record: Record) -> None:
        """Take a record."""
        ...

    def close(self) -> None:
        """No more records come; closing again does nothing."""
        ...


class NullSink:
    """Keeps nothing."""

    def write(self, record: Record) -> None:
        """Forget the record."""

    def close(self) -> None:
        """Do nothing."""


class ListSink:
    """Keeps the records in memory, in ``records``."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        """Append the record."""
        self.records.append(record)

    def close(self) -> None:
        """Do nothing."""


class JsonlSink:
    """Writes one rank's records as JSON lines to ``rank-00000.jsonl`` in a directory that all ranks share.

    Every record is handed to the system at once, so that a killed run keeps all but at most its last line.
    When the file would exceed half of ``max_bytes`` it becomes ``rank-00000.1.jsonl``, replacing the one
    before, and a new file is begun: the two never take more than ``max_bytes``, and the newest records stay.

    Telemetry must not end a training: where the disk is full or cannot be written to, the sink warns once
    and drops what comes, counting it in ``dropped``.  Safe to use from several threads.

    Args:
        directory: made if it is missing.
        run: the first line of every file; its ``part`` is set here.
        max_bytes: limit on this rank's two files together.
        append: continue the files of an earlier start, losing nothing (a line that was cut when that was
            killed is removed), with the run record as the next line; begin new ones where there are none.

    Raises:
        TelemetryError: without ``append``, the directory already holds a run; or what it holds is none; or
            ``run`` cannot be written as JSON.
        ConfigurationError: ``max_bytes`` is too little for the run record and some lines.

    Example:
        >>> with JsonlSink("runs/today", run=run) as sink:  # doctest: +SKIP
        ...     sink.write(EventRecord(name="epoch_end", rank=0, iteration=9, detail="", at_s=1.5))
    """

    def __init__(
        self, directory: str | Path, *, run: RunRecord, max_bytes: int = 64 * MIB, append: bool = False
    ) -> None:
        self._run, self._directory = run, Path(directory)
        self._part_bytes = max_bytes // 2
        # Reentrant: a signal handler may write an event while its thread is writing a record.
        self._lock = threading.RLock()
        self._warned = False
        self._dropped = 0
        self._part: Part | None = None
        try:
            self._head_bytes = len(encode(replace(run, part=_MOST_PARTS)))
        except _UNWRITABLE as error:
            raise TelemetryError(f"the run record cannot be written as JSON ({error}): {run}") from error
        least = 8 * self._head_bytes
        if max_bytes < least:
            raise ConfigurationError(f"max_bytes={max_bytes}: must be {least} or more for this run's records")
        try:
            self._part = self._begin(append=append)
        except OSError as error:
            self._warn(f"telemetry is off: {self._directory} cannot be written to ({error})")

    @property
    def dropped(self) -> int:
        """Records that could not be written."""
        return self._dropped

    @property
    def path(self) -> Path:
        """The file with the newest records."""
        return file_of(self._directory, self._run.rank)

    def write(self, record: Record) -> None:
        """Write the record; if that fails, warn the first time and count it in ``dropped``."""
        with self._lock:
            complaint = self._write(record)
        if complaint is not None:
            self._warn(complaint)

    def close(self) -> None:
        """Close the file; records that still come are dropped."""
        with self._lock:
            part, self._part = self._part, None
            if part is not None:
                part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, *, append: bool) -> Part:
        self._directory.mkdir(parents=True, exist_ok=True)
        if append:
            return continued(self.path, self._run, self._part_bytes)
        # Rank 0's file too, so that all ranks refuse alike where the earlier run had fewer workers.
        first = file_of(self._directory, 0)
        for path in (self.path, older_of(self.path), first):
            if path.exists() and (path != first or self._run.rank == 0 or self._is_of_another_run(path)):
                raise TelemetryError(
                    f"{path} already holds a run; take another directory, remove that one, "
                    "or pass append=True to continue it"
                )
        return Part.create(self.path, replace(self._run, part=0))

    def _is_of_another_run(self, path: Path) -> bool:
        record = run_record_of(path)
        return record is not None and record.run != self._run.run

    def _write(self, record: Record) -> str | None:
        part = self._part
        if part is None:
            self._dropped += 1
            return None
        try:
            line = encode(record)
        except _UNWRITABLE as error:
            self._dropped += 1
            return f"a telemetry record was dropped: it cannot be written as JSON ({error})"
        if part.size + len(line) > self._part_bytes:
            if self._head_bytes + len(line) > self._part_bytes:
                self._dropped += 1
                return (
                    f"a telemetry record of {len(line)} bytes was dropped: it does not fit into half of "
                    f"max_bytes={2 * self._part_bytes}; raise max_bytes"
                )
            self._part = None  # what a signal handler writes meanwhile is dropped
            try:
                part = self._part = part.rotated(self._run)
            except OSError as error:
                self._dropped += 1
                return f"telemetry stops: {self.path} cannot be rotated ({error})"
        try:
            part.append(line)
        except OSError as error:
            self._dropped += 1
            self.close()
            return f"telemetry stops: {self.path} cannot be written to ({error}); training goes on"
        return None

    def _warn(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(message, RuntimeWarning, stacklevel=3)
