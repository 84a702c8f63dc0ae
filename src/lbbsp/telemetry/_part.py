"""One open file of a `JsonlSink`: create, continue, append, rotate.  Errors of the system pass through."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from lbbsp.errors import TelemetryError
from lbbsp.telemetry._files import check_version, older_of
from lbbsp.telemetry.schema import RunRecord, decode, encode

__all__ = ["Part", "continued", "run_record_of"]


class Part:
    """An open file that begins with a run record: part ``number`` of its rank, ``size`` bytes long."""

    def __init__(self, path: Path, mode: str, *, number: int, size: int) -> None:
        self._file = io.FileIO(path, mode, opener=_appending)
        self.path, self.number, self.size = path, number, size

    @classmethod
    def create(cls, path: Path, run: RunRecord) -> Part:
        """A new file with ``run`` as its first line.

        Raises:
            FileExistsError: there is one.
        """
        part = cls(path, "xb", number=run.part, size=0)
        try:
            part.append(encode(run))
        except OSError:
            part.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        return part

    def append(self, line: bytes) -> None:
        """Write a line at the end, past all buffers of this process; take back what fails half-way."""
        done = 0
        try:
            # One call writes a line whole, but for a disk that fills up.
            while done < len(line):
                done += self._file.write(line[done:] if done else line)
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self.size)
            raise
        self.size += done

    def rotated(self, run: RunRecord) -> Part:
        """Close this part, let it replace the older one, and begin the next with ``run``."""
        self.close()
        os.replace(self.path, older_of(self.path))
        return Part.create(self.path, replace(run, part=self.number + 1))

    def close(self) -> None:
        """Close the file; a failure to do so loses nothing that was written."""
        with contextlib.suppress(OSError):
            self._file.close()


def _appending(path: str, flags: int) -> int:
    # Always: should the process of a killed start live on, lines may mix but none is overwritten.
    return os.open(path, flags | os.O_APPEND, 0o666)


def continued(path: Path, run: RunRecord, part_bytes: int) -> Part:
    """The file of an earlier start, mended and with ``run`` as its next line; a new one where there is none.

    It is rotated at once where ``run`` would make it exceed ``part_bytes``.

    Raises:
        TelemetryError: what is there does not begin with a run record.
    """
    older = run_record_of(older_of(path))
    following = 0 if older is None else older.part + 1
    if older is not None and older_of(path).stat().st_size > part_bytes:
        older_of(path).unlink()  # the limit was lowered
    newest = run_record_of(path)
    if newest is None:
        path.unlink(missing_ok=True)  # killed before its first line was written
        return Part.create(path, replace(run, part=following))
    size = _mend(path)
    line = encode(replace(run, part=newest.part))
    part = Part(path, "ab", number=newest.part, size=size)
    try:
        if size + len(line) > part_bytes:
            part = part.rotated(run)
            if size > part_bytes:
                older_of(path).unlink()
        else:
            part.append(line)
    except OSError:
        part.close()
        raise
    return part


def run_record_of(path: Path) -> RunRecord | None:
    """The run record that a file begins with; None if there is no file, or it was killed before that line.

    Raises:
        TelemetryError: the file begins with something else, or has a newer schema.
    """
    try:
        with path.open("rb") as file:
            head = file.readline()
    except FileNotFoundError:
        return None
    if not head.endswith(b"\n"):
        return None
    check_version(path, head)
    try:
        record = decode(head)
    except msgspec.DecodeError:
        record = None
    if not isinstance(record, RunRecord):
        raise TelemetryError(f"{path} does not begin with a run record; take another directory, or remove it")
    return record


def _mend(path: Path) -> int:
    """End the file with its last whole record; return its size in bytes."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole == len(data):
        return whole
    try:
        msgspec.json.decode(data[whole:])
    except msgspec.DecodeError:
        os.truncate(path, whole)
        return whole
    with path.open("ab") as file:
        file.write(b"\n")
    return len(data) + 1
