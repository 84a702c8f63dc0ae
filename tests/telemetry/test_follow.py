from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbbsp.errors import TelemetryError
from lbbsp.telemetry import EventRecord, JsonlSink, Record, RunFollower, read_run
from lbbsp.telemetry.schema import encode
from tests.telemetry.records import event, run_record


def details(records: list[Record]) -> list[str]:
    return [record.detail.rstrip("x") for record in records if isinstance(record, EventRecord)]


def test_each_record_is_given_once(tmp_path: Path) -> None:
    follower = RunFollower(tmp_path / "run")
    assert follower.poll() == []
    with JsonlSink(tmp_path / "run", run=run_record()) as sink:
        assert follower.poll() == [run_record()]
        sink.write(event("a"))
        sink.write(event("b"))
        assert follower.poll() == [event("a"), event("b")]
        assert follower.poll() == []
        with JsonlSink(tmp_path / "run", run=run_record(1)) as other:
            other.write(event("c", rank=1))
            sink.write(event("d"))
            assert follower.poll() == [event("d"), run_record(1), event("c", rank=1)]


@given(st.lists(st.integers(1, 8), max_size=30))
def test_rotation_between_polls(bursts: list[int]) -> None:
    with TemporaryDirectory() as name:
        follower = RunFollower(name)
        written, seen, sent = 0, [], []
        with JsonlSink(name, run=run_record(), max_bytes=4000) as sink:
            for burst in bursts:
                for _ in range(burst):
                    sent.append(str(written))
                    sink.write(event(str(written).ljust(150, "x")))
                    written += 1
                seen += details(follower.poll())
        assert follower.missed_parts == 0
        assert seen == sent


def test_parts_that_were_never_seen_are_counted(tmp_path: Path) -> None:
    follower = RunFollower(tmp_path)
    with JsonlSink(tmp_path, run=run_record(), max_bytes=4000) as sink:
        sink.write(event("first"))
        follower.poll()
        for i in range(200):
            sink.write(event(str(i).ljust(150, "x")))
    found = details(follower.poll())
    assert found == details(list(read_run(tmp_path).events))
    assert follower.missed_parts > 5


@given(st.data())
def test_bytes_may_come_in_any_pieces(data: st.DataObject) -> None:
    records: list[Record] = [run_record(), event("a"), event("ü"), event("c")]
    whole = b"".join(map(encode, records))
    cuts = [*sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=5))), len(whole)]
    with TemporaryDirectory() as name:
        path = Path(name) / "rank-00000.jsonl"
        follower, seen = RunFollower(path), []
        for cut in cuts:
            path.write_bytes(whole[:cut])
            seen += follower.poll()
    assert seen == records


def test_a_restart_after_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "rank-00000.jsonl"
    path.write_bytes(encode(run_record()) + encode(event("a")) + b'{"type":"ev')
    follower = RunFollower(tmp_path)
    assert details(follower.poll()) == ["a"]
    with JsonlSink(tmp_path, run=run_record(started_at="t1"), append=True) as sink:
        sink.write(event("b"))
    assert follower.poll() == [run_record(started_at="t1"), event("b")]


def test_a_killed_rotation(tmp_path: Path) -> None:
    path = tmp_path / "rank-00000.jsonl"
    path.write_bytes(encode(run_record()) + encode(event("a")))
    follower = RunFollower(tmp_path)
    follower.poll()
    with path.open("ab") as file:
        file.write(encode(event("b")))
    path.rename(tmp_path / "rank-00000.1.jsonl")
    assert details(follower.poll()) == ["b"]
    with JsonlSink(tmp_path, run=run_record(started_at="t1"), append=True) as sink:
        sink.write(event("c"))
    assert details(follower.poll()) == ["c"]
    assert follower.missed_parts == 0


def test_another_run_in_the_same_place(tmp_path: Path) -> None:
    follower = RunFollower(tmp_path)
    for name in ("one", "two"):
        with JsonlSink(tmp_path, run=run_record(run=name)) as sink:
            sink.write(event(name))
        assert details(follower.poll()) == [name]
        sink.path.unlink()


def test_broken_lines_and_newer_versions(tmp_path: Path) -> None:
    path = tmp_path / "rank-00000.jsonl"
    path.write_bytes(encode(run_record()) + b'{"type":"weather"}\n')
    follower = RunFollower(tmp_path)
    follower.poll()
    assert follower.skipped == 1
    with path.open("ab") as file:
        file.write(b"oops\n")
    with pytest.raises(TelemetryError, match=r"rank-00000.jsonl:3: not JSON"):
        follower.poll()
    path.write_bytes(b'{"type":"run","schema":9,"version":"9.9"}\n')
    with pytest.raises(TelemetryError, match="schema 9"):
        RunFollower(tmp_path).poll()
