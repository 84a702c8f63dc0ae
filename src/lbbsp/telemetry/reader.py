"""Reads a recorded run back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lbbsp.errors import TelemetryError
from lbbsp.telemetry._files import Lines, file_of, older_of, ranks_in
from lbbsp.telemetry.schema import DecisionRecord, EventRecord, IterationRecord, Record, RunRecord

__all__ = ["Run", "read_run"]

_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A recorded run.

    Args:
        runs: the run records, one for every rank and start (``part`` 0, whatever part it was read from).
        iterations: of all ranks, rank after rank, each in the order of writing.  A restart that went back to
            a checkpoint repeats iterations: the later record is the one that counts.
        decisions: in the order of writing.
        events: rank after rank, each in the order of writing.
        skipped: records of types that this lbbsp does not know.
        cut: files whose last line was cut, by a kill or a full disk.
        beheaded: ranks of which older parts were rotated away or lost.
    """

    runs: tuple[RunRecord, ...]
    iterations: tuple[IterationRecord, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    skipped: int = 0
    cut: tuple[Path, ...] = ()
    beheaded: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        records: Iterable[Record],
        *,
        skipped: int = 0,
        cut: Iterable[Path] = (),
        beheaded: Iterable[int] = (),
    ) -> Run:
        """The run that ``records`` tell of, such as those of a `ListSink`.

        Raises:
            TelemetryError: there is no run record.
        """
        records = list(records)
        starts = (replace(record, part=0) for record in records if isinstance(record, RunRecord))
        runs = {repr(start): start for start in starts}
        if not runs:
            raise TelemetryError("no run record: a recorded run begins with one")
        return cls(
            runs=tuple(runs.values()),
            iterations=tuple(record for record in records if isinstance(record, IterationRecord)),
            decisions=tuple(record for record in records if isinstance(record, DecisionRecord)),
            events=tuple(record for record in records if isinstance(record, EventRecord)),
            skipped=skipped,
            cut=tuple(cut),
            beheaded=tuple(beheaded),
        )

    @property
    def record(self) -> RunRecord:
        """The newest run record of the lowest rank: what was run, as last started."""
        lowest = min(record.rank for record in self.runs)
        return [record for record in self.runs if record.rank == lowest][-1]

    @property
    def workers(self) -> int:
        """The most workers that the run had."""
        return max(record.workers for record in self.runs)


def read_run(path: str | Path) -> Run:
    """The run recorded in a directory, or the part of it in one file; it may still be in progress.

    A last line that was cut (the run was killed while writing it) is left out and named in `Run.cut`.

    Args:
        path: the directory that the sinks wrote to, or one file of it.

    Raises:
        TelemetryError: there is no recorded run, it has a newer schema, or a line is broken.

    Example:
        >>> run = read_run("runs/today")  # doctest: +SKIP
        >>> run.record.mode, len(run.iterations)  # doctest: +SKIP
        ('balanced', 480)
    """
    path = Path(path)
    try:
        chains = [[path]] if path.is_file() else _chains(path)
        return _read(path, chains)
    except OSError as error:
        raise TelemetryError(
            f"{path} cannot be read ({error.strerror or error}); give the directory of a recorded run"
        ) from error


def _chains(directory: Path) -> list[list[Path]]:
    """For each rank its files, oldest first."""
    chains = [[older_of(file_of(directory, r)), file_of(directory, r)] for r in ranks_in(directory)]
    if not chains:
        raise TelemetryError(f"{directory} holds no rank-*.jsonl; give the directory that a run was recorded to")
    return chains


def _read(path: Path, chains: list[list[Path]]) -> Run:
    records: list[Record] = []
    cut: list[Path] = []
    beheaded: list[int] = []
    skipped = 0
    for chain in chains:
        expected_part = 0
        for file, data in _contents(chain):
            lines = Lines(file)
            found = lines.feed(data)
            last = lines.end(data[lines.offset :])
            if last is None or not data:
                cut.append(file)
            found += last or []
            skipped += lines.skipped
            records += found
            if found and isinstance(found[0], RunRecord):
                if found[0].part != expected_part and found[0].rank not in beheaded:
                    beheaded.append(found[0].rank)
                expected_part = found[0].part + 1
    if not any(isinstance(record, RunRecord) for record in records):
        raise TelemetryError(
            f"{path} holds no run record: the run was killed before it wrote its first line; record it again"
        )
    return Run.of(records, skipped=skipped, cut=cut, beheaded=beheaded)


def _contents(chain: list[Path]) -> list[tuple[Path, bytes]]:
    """The bytes of a rank's files, oldest first, read so that a rotation meanwhile loses and doubles nothing.

    The newest file is read first: if it is rotated after that, the older one read next is the same file,
    which its first line (its part number) shows; then all is read again.
    """
    contents: list[tuple[Path, bytes]] = []
    for _ in range(_TRIES):
        read = ((file, _bytes(file)) for file in reversed(chain))
        contents = [(file, data) for file, data in read if data is not None]
        heads = {data.partition(b"\n")[0] for _, data in contents}
        if len(heads) == len(contents):
            return contents[::-1]
    return contents[:1]


def _bytes(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
