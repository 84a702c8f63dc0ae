"""Follows a recorded run while it is in progress."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from lbbsp.errors import TelemetryError
from lbbsp.telemetry._files import Lines, file_of, older_of, ranks_in
from lbbsp.telemetry.schema import Record, RunRecord, decode

__all__ = ["RunFollower"]


@dataclass(slots=True)
class _Place:
    """How far a rank has been read: in the file that begins with ``head`` (its run record, with its part)."""

    head: bytes
    part: int
    lines: Lines


@dataclass(slots=True)
class _Part:
    path: Path
    file: BinaryIO
    head: bytes
    part: int


class RunFollower:
    """Gives the new records of a run each time it is asked.

    No file stays open between polls.  A file is known by its first line, so that rotation is seen whatever
    the file system does.  A line that is not yet ended waits for the next poll.

    Args:
        path: the directory that a run is (or will be) recorded to, or one rank's file in it.

    Example:
        >>> follower = RunFollower("runs/today")  # doctest: +SKIP
        >>> for record in follower.poll():  # doctest: +SKIP
        ...     show(record)
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._places: dict[Path, _Place] = {}
        self._skipped = 0
        self._missed_parts = 0

    @property
    def missed_parts(self) -> int:
        """Parts that were rotated away before they were read."""
        return self._missed_parts

    @property
    def skipped(self) -> int:
        """Records of types that this lbbsp does not know."""
        return self._skipped

    def poll(self) -> list[Record]:
        """The records written since the last poll, rank after rank; none while the run has not begun.

        A new part begins with the run record again.

        Raises:
            TelemetryError: a line is broken, or the run has a newer schema.
        """
        try:
            if self._path.is_dir():
                files = [file_of(self._path, rank) for rank in ranks_in(self._path)]
            else:
                files = [self._path]
            return [record for file in files for record in self._poll(file)]
        except OSError as error:
            raise TelemetryError(f"{self._path} cannot be read ({error.strerror or error})") from error

    def _poll(self, path: Path) -> list[Record]:
        place = self._places.get(path)
        with ExitStack() as stack:
            # The newest first: what it is rotated to meanwhile is then found again, and known by its head.
            newest = _open(stack, path)
            parts = [newest]
            if newest is None or place is None or newest.head != place.head:
                older = _open(stack, older_of(path))
                if older and (newest is None or older.head != newest.head):
                    parts = [older, newest]
            records: list[Record] = []
            for part in parts:
                if part is not None:
                    place = self._enter(part, place)
                    part.file.seek(place.lines.offset)
                    before = place.lines.skipped
                    records += place.lines.feed(part.file.read())
                    self._skipped += place.lines.skipped - before
                    self._places[path] = place
        return records

    def _enter(self, part: _Part, place: _Place | None) -> _Place:
        if place is not None and place.head == part.head:
            return place
        expected = 0 if place is None else place.part + 1
        self._missed_parts += max(0, part.part - expected)
        return _Place(part.head, part.part, Lines(part.path))


def _open(stack: ExitStack, path: Path) -> _Part | None:
    """The file, if it is there and its first line is written."""
    try:
        file = stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return None
    head = file.readline()
    if not head.endswith(b"\n"):
        return None
    try:
        record = decode(head)
    except msgspec.DecodeError:
        record = None  # `Lines` says what is wrong with it
    return _Part(path, file, head, record.part if isinstance(record, RunRecord) else 0)
