from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbbsp.errors import TelemetryError
from lbbsp.telemetry import DecisionRecord, EventRecord, IterationRecord, JsonlSink, Record, Run, read_run
from lbbsp.telemetry import reader as reader_module
from lbbsp.telemetry.schema import encode
from tests.telemetry.records import decision, event, iteration, later_records, run_record

RUN = encode(run_record())


def put(directory: Path, *lines: bytes, name: str = "rank-00000.jsonl") -> Path:
    path = directory / name
    path.write_bytes(b"".join(lines))
    return path


def test_a_directory_of_ranks(tmp_path: Path) -> None:
    for rank in (1, 0):
        with JsonlSink(tmp_path, run=run_record(rank)) as sink:
            sink.write(iteration(rank, 0))
            sink.write(event("e", rank=rank))
            if rank == 0:
                sink.write(decision())
    (tmp_path / "notes.txt").write_text("not ours")
    run = read_run(tmp_path)
    assert run == Run(
        runs=(run_record(0), run_record(1)),
        iterations=(iteration(0, 0), iteration(1, 0)),
        decisions=(decision(),),
        events=(event("e"), event("e", rank=1)),
    )
    assert run.workers == 2
    assert run.record == run_record(0)
    assert read_run(str(tmp_path / "rank-00001.jsonl")).iterations == (iteration(1, 0),)


@given(st.lists(later_records, max_size=6), st.data())
def test_a_file_cut_at_any_byte_is_readable_up_to_the_cut(records: list[Record], data: st.DataObject) -> None:
    lines = [RUN, *map(encode, records)]
    whole = b"".join(lines)
    at = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, lines[: i + 1])) for i in range(len(lines))]
    kept = sum(end - 1 <= at for end in ends) - 1
    with TemporaryDirectory() as name:
        path = put(Path(name), whole[:at])
        if kept < 0:
            with pytest.raises(TelemetryError, match="before it wrote its first line"):
                read_run(path)
            return
        run = read_run(path)
    for found, kind in (
        (run.iterations, IterationRecord),
        (run.decisions, DecisionRecord),
        (run.events, EventRecord),
    ):
        assert list(found) == [record for record in records[:kept] if isinstance(record, kind)]
    assert bool(run.cut) == (at not in {*ends, *(end - 1 for end in ends)})


def test_a_rank_killed_at_its_first_line_spoils_no_other(tmp_path: Path) -> None:
    put(tmp_path, RUN, encode(iteration()))
    cut = put(tmp_path, RUN[:20], name="rank-00001.jsonl")
    empty = put(tmp_path, name="rank-00002.jsonl")
    run = read_run(tmp_path)
    assert run.cut == (cut, empty)
    assert run.iterations == (iteration(),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{oops\n", r"rank-00000.jsonl:3: not JSON .*may be cut"),
        (b"\xff\n", r":3: not JSON"),
        (b'{"type":"event","name":5}\n', r":3: not a record of schema 1: .*name"),
        (b'{"type":"event"}\n', r":3: not a record of schema 1: .*missing"),
        (b'{"name":"x"}\n', r":3: not a record"),
        (b"[1]\n", r":3: not a record"),
        (b'{"type":5}\n', r":3: not a record"),
        (b'{"type":"event","name":5}', r":3: not a record"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    put(tmp_path, RUN, encode(event()), line, encode(event()) if line.endswith(b"\n") else b"")
    with pytest.raises(TelemetryError, match=message):
        read_run(tmp_path)


def test_records_of_unknown_types_are_skipped_and_counted(tmp_path: Path) -> None:
    put(tmp_path, RUN, b'{"type":"weather","sky":[1,{}]}\n', encode(event()), b'{"type":"weather"}', b"\n\n")
    run = read_run(tmp_path)
    assert run.skipped == 2
    assert run.events == (event(),)


@pytest.mark.parametrize("changed", [{"schema": 2}, {"schema": 3, "rank": {"node": 0}}])
def test_a_newer_schema_is_an_error_that_names_the_versions(tmp_path: Path, changed: dict[str, object]) -> None:
    raw = json.loads(RUN) | {"version": "7.1"} | changed
    put(tmp_path, json.dumps(raw).encode() + b"\n")
    with pytest.raises(TelemetryError, match=rf"schema {changed['schema']} \(written by lbbsp 7.1\).*schema 1"):
        read_run(tmp_path)


def test_a_file_without_its_beginning(tmp_path: Path) -> None:
    put(tmp_path, encode(event()))
    with pytest.raises(TelemetryError, match=r"rank-00000.jsonl:1: .*begins with 'event'"):
        read_run(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(TelemetryError, match="holds no rank-"):
        read_run(tmp_path)
    with pytest.raises(TelemetryError, match=r"cannot be read .No such file"):
        read_run(tmp_path / "missing")
    with pytest.raises(TelemetryError, match="no run record"):
        Run.of([event()])


def test_a_lost_middle_part_is_seen(tmp_path: Path) -> None:
    with JsonlSink(tmp_path, run=run_record(), max_bytes=4000) as sink:
        while not (tmp_path / "rank-00000.1.jsonl").exists():
            sink.write(event("x" * 100))
    assert read_run(tmp_path).beheaded == ()
    assert read_run(tmp_path / "rank-00000.jsonl").beheaded == (0,)
    assert read_run(tmp_path / "rank-00000.1.jsonl").beheaded == ()
    (tmp_path / "rank-00000.1.jsonl").unlink()
    assert read_run(tmp_path).beheaded == (0,)


def test_a_rotation_while_reading_loses_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonlSink(tmp_path, run=run_record(), max_bytes=4000)
    sink.write(event("0"))
    real, turns = reader_module._bytes, iter(range(1000))

    def reads_as_it_rotates(file: Path) -> bytes | None:
        data = real(file)
        if next(turns) == 0:
            for i in range(1, 12):
                sink.write(event(str(i).ljust(120, "x")))
        return data

    monkeypatch.setattr(reader_module, "_bytes", reads_as_it_rotates)
    run = read_run(tmp_path)
    sink.close()
    assert (tmp_path / "rank-00000.1.jsonl").exists()
    assert [record.detail.rstrip("x") for record in run.events] == [str(i) for i in range(12)]
    assert len(run.runs) == 1


def test_a_restart_with_other_workers(tmp_path: Path) -> None:
    for start, workers in (("t0", 4), ("t1", 2)):
        for rank in range(workers):
            record = run_record(rank, workers=workers, started_at=start)
            JsonlSink(tmp_path, run=record, append=True).close()
    run = read_run(tmp_path)
    assert run.workers == 4
    assert run.record.workers == 2
    assert len(run.runs) == 6
