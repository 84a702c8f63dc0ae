"""The file that keeps the caps of ranks that ran out of memory, over restarts of the job."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from lbbsp.errors import ConfigurationError

__all__ = ["KeptCap", "read_cap", "write_cap"]

SCHEMA = 1
_LOCK_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCap:
    """What is kept of a rank.

    Args:
        cap: the most samples that it may have.
        size: the batch that did not fit.
        iteration: in which it was.
        memory: the name of the memory that did not hold it; a rank on other memory does not take the cap.
    """

    cap: int
    size: int
    iteration: int
    memory: str


class _File(msgspec.Struct, frozen=True):
    schema: int
    caps: dict[str, KeptCap] = {}


def _read(path: Path) -> dict[str, KeptCap]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigurationError(f"caps_file={str(path)!r} cannot be read: {error}") from error
    try:
        kept = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"caps_file={str(path)!r} is no file of memory caps ({error}): name another, or remove it"
        ) from error
    if kept.schema != SCHEMA:
        raise ConfigurationError(f"caps_file={str(path)!r} has schema {kept.schema}, this lbbsp reads {SCHEMA}")
    return kept.caps


def read_cap(path: Path, *, rank: int, memory: str) -> KeptCap | None:
    """The cap kept for ``rank``, if it was learned on memory of this name.

    Raises:
        ConfigurationError: there is a file, but not of caps.
    """
    kept = _read(path).get(str(rank))
    return kept if kept is not None and kept.memory == memory else None


def write_cap(path: Path, *, rank: int, kept: KeptCap) -> None:
    """Keep a rank's cap; those of other ranks stay.  The file is replaced as a whole, so no reader sees a part.

    Raises:
        OSError: it cannot be written.
        ConfigurationError: there is a file already, but not of caps.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.parent):
        caps = {**_read(path), str(rank): kept}
        document = {"schema": SCHEMA, "caps": msgspec.to_builtins(caps)}
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_text(json.dumps(document, indent=2) + "\n")
        part.replace(path)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two ranks that fail at once must not lose one another's cap."""
    try:
        import fcntl
    except ImportError:  # Windows: no lock, and no cgroups or gloo to speak of
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    deadline = time.monotonic() + _LOCK_LIMIT_S
    try:
        while time.monotonic() < deadline:  # better an unlocked write than none
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)
