from __future__ import annotations

import errno
import io
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbbsp.errors import ConfigurationError, TelemetryError
from lbbsp.telemetry import JsonlSink, ListSink, NullSink, Record, RunRecord, Sink, read_run
from lbbsp.telemetry.schema import decode, encode
from tests.telemetry.records import event, iteration, run_record

LEAST = 8 * len(encode(run_record())) + 200


def lines(path: Path) -> list[Record]:
    return [decode(line) for line in path.read_bytes().splitlines()]


def write(directory: Path, *details: str, append: bool = False, started_at: str = "t0") -> None:
    with JsonlSink(directory, run=run_record(started_at=started_at), append=append) as sink:
        for detail in details:
            sink.write(event(detail))


def write_many(sink: Sink, count: int) -> None:
    for _ in range(count):
        sink.write(event("x" * 100))


def details(directory: Path) -> list[str]:
    return [record.detail for record in read_run(directory).events]


def test_a_file_a_rank_begins_with_the_run_record(tmp_path: Path) -> None:
    for rank in (0, 12):
        with JsonlSink(tmp_path / "new" / "run", run=run_record(rank, workers=13)) as sink:
            sink.write(iteration(rank))
    assert sorted(p.name for p in (tmp_path / "new" / "run").iterdir()) == [
        "rank-00000.jsonl",
        "rank-00012.jsonl",
    ]
    assert lines(sink.path) == [run_record(12, workers=13), iteration(12)]


def test_each_record_is_with_the_system_at_once(tmp_path: Path) -> None:
    with JsonlSink(tmp_path, run=run_record()) as sink:
        for k in range(3):
            sink.write(iteration(k=k))
            assert len(lines(sink.path)) == k + 2


@pytest.mark.parametrize("sink", [NullSink(), ListSink()])
def test_the_other_sinks(sink: Sink) -> None:
    sink.write(event())
    sink.close()
    sink.close()
    assert getattr(sink, "records", [event()]) == [event()]


@given(
    sizes=st.lists(st.integers(0, 1500), max_size=60),
    spare=st.integers(0, 3000),
    restarts=st.sets(st.integers(0, 59), max_size=3),
)
def test_the_two_files_never_exceed_the_limit_and_hold_the_newest(
    sizes: list[int], spare: int, restarts: set[int]
) -> None:
    limit = LEAST + spare
    wanted: list[str] = []
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr("warnings.warn", lambda *_args, **_kwargs: None)
        directory = Path(name)
        sink = JsonlSink(directory, run=run_record(), max_bytes=limit)
        for i, size in enumerate(sizes):
            if i in restarts:
                sink.close()
                again = run_record(started_at=f"t{i + 1}")
                sink = JsonlSink(directory, run=again, max_bytes=limit, append=True)
            dropped = sink.dropped
            detail = f"{i:04d}".ljust(size, ".")
            sink.write(event(detail))
            if sink.dropped == dropped:
                wanted.append(detail)
            assert sum(path.stat().st_size for path in directory.iterdir()) <= limit
        sink.close()
        run = read_run(directory)
        found = [record.detail for record in run.events]
        assert found == wanted[len(wanted) - len(found) :]
        assert bool(run.beheaded) or found == wanted or not found
        if not restarts:  # a restart's run records can fill a file that is then lost, with no event in it
            assert bool(run.beheaded) == (found != wanted) or not found
        assert len(list(directory.iterdir())) <= 2
        for path in directory.iterdir():
            assert isinstance(lines(path)[0], RunRecord)


def test_parts_are_numbered(tmp_path: Path) -> None:
    with JsonlSink(tmp_path, run=run_record(), max_bytes=LEAST) as sink:
        write_many(sink, 50)
    older, newer = (lines(tmp_path / name)[0] for name in ("rank-00000.1.jsonl", "rank-00000.jsonl"))
    assert isinstance(older, RunRecord)
    assert isinstance(newer, RunRecord)
    assert newer.part == older.part + 1 > 2
    assert sink.dropped == 0


def test_a_record_that_never_fits_is_dropped_and_the_rest_kept(tmp_path: Path) -> None:
    with JsonlSink(tmp_path, run=run_record(), max_bytes=LEAST) as sink:
        sink.write(event("before"))
        with pytest.warns(RuntimeWarning, match="raise max_bytes"):
            sink.write(event("x" * LEAST))
        sink.write(event("after"))
    assert sink.dropped == 1
    assert details(tmp_path) == ["before", "after"]


def test_a_limit_below_a_few_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="max_bytes=100: must be"):
        JsonlSink(tmp_path, run=run_record(), max_bytes=100)


def test_an_existing_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "first")
    before = (tmp_path / "rank-00000.jsonl").read_bytes()
    with pytest.raises(TelemetryError, match=r"already holds a run.*append=True"):
        JsonlSink(tmp_path, run=run_record())
    assert (tmp_path / "rank-00000.jsonl").read_bytes() == before


def test_all_ranks_refuse_an_earlier_run_of_fewer_workers(tmp_path: Path) -> None:
    write(tmp_path, "first")
    with pytest.raises(TelemetryError, match=r"rank-00000.jsonl already holds"):
        JsonlSink(tmp_path, run=run_record(3, workers=4, run="another"))
    JsonlSink(tmp_path, run=run_record(1)).close()


def test_a_lone_older_part_is_an_existing_run(tmp_path: Path) -> None:
    write(tmp_path, "first")
    (tmp_path / "rank-00000.jsonl").rename(tmp_path / "rank-00000.1.jsonl")
    with pytest.raises(TelemetryError, match="already holds a run"):
        JsonlSink(tmp_path, run=run_record())
    write(tmp_path, "second", append=True, started_at="t1")
    assert details(tmp_path) == ["first", "second"]
    assert read_run(tmp_path).beheaded == ()


def test_a_restart_continues_and_loses_nothing(tmp_path: Path) -> None:
    write(tmp_path, "first", append=True)
    write(tmp_path, "second", append=True, started_at="t1")
    run = read_run(tmp_path)
    assert [record.started_at for record in run.runs] == ["t0", "t1"]
    assert run.record.started_at == "t1"
    assert details(tmp_path) == ["first", "second"]


@given(st.data())
def test_a_restart_after_a_kill_at_any_byte(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        write(directory, "first", "second")
        path = directory / "rank-00000.jsonl"
        whole = path.read_bytes()
        at = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:at])
        # A line lacks no more than its newline is whole.
        kept = [d for d in ("first", "second") if whole.index(d.encode() + b'","at_s":0.0}') + len(d) + 13 <= at]
        write(directory, "third", append=True, started_at="t1")
        run = read_run(directory)
        assert [record.detail for record in run.events] == [*kept, "third"]
        assert run.cut == ()
        assert run.beheaded == ()


@pytest.mark.parametrize("after_rotation", [1, 100])
def test_a_lowered_limit_holds_from_the_restart_on(tmp_path: Path, after_rotation: int) -> None:
    with JsonlSink(tmp_path, run=run_record(), max_bytes=100_000) as sink:
        while not (tmp_path / "rank-00000.1.jsonl").exists():
            write_many(sink, 1)
        write_many(sink, after_rotation - 1)
    JsonlSink(tmp_path, run=run_record(started_at="t1"), max_bytes=LEAST, append=True).close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= LEAST
    assert read_run(tmp_path).beheaded == (0,)


def test_what_is_no_run_is_not_continued(tmp_path: Path) -> None:
    (tmp_path / "rank-00000.jsonl").write_text("my notes\n")
    with pytest.raises(TelemetryError, match="does not begin with a run record"):
        JsonlSink(tmp_path, run=run_record(), append=True)
    (tmp_path / "rank-00000.jsonl").write_text('{"type":"run","schema":2,"version":"9.0"}\n')
    with pytest.raises(TelemetryError, match=r"schema 2 .written by lbbsp 9.0"):
        JsonlSink(tmp_path, run=run_record(), append=True)


def test_a_full_disk_stops_the_telemetry_with_one_warning(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path, run=run_record())
    sink.write(event("kept"))
    part = sink._part
    assert part is not None
    real = part._file

    class Full(io.FileIO):
        def write(self, line: object, /) -> int:
            if len(bytes(line)) > 10:  # type: ignore[call-overload]
                return real.write(bytes(line)[:10])  # type: ignore[call-overload]
            raise OSError(errno.ENOSPC, "No space left on device")

    with Full(sink.path, "ab") as full:
        part._file = full
        with pytest.warns(RuntimeWarning, match=r"No space left on device.*training goes on"):
            sink.write(event("lost"))
        for _ in range(4):
            sink.write(event("lost"))  # a second warning would be an error
        real.close()
    assert sink.dropped == 5
    assert details(tmp_path) == ["kept"]
    assert read_run(tmp_path).cut == ()


def test_a_disk_that_is_full_at_the_start_leaves_no_empty_file(tmp_path: Path) -> None:
    with (
        patch("lbbsp.telemetry._part.Part.append", side_effect=OSError(errno.ENOSPC, "No space left")),
        pytest.warns(RuntimeWarning, match=r"telemetry is off: .*No space left"),
    ):
        JsonlSink(tmp_path, run=run_record())
    assert list(tmp_path.iterdir()) == []


def test_a_failed_rotation_stops_the_telemetry(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path, run=run_record(), max_bytes=LEAST)
    with patch("os.replace", side_effect=PermissionError("no")):
        with pytest.warns(RuntimeWarning, match="cannot be rotated"):
            write_many(sink, 50)
        write_many(sink, 50)  # a second warning would be an error
    sink.close()
    assert len(details(tmp_path)) + sink.dropped == 100


def test_where_nothing_can_be_written_it_warns_and_drops(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="telemetry is off"):
        sink = JsonlSink(tmp_path / "file" / "run", run=run_record())
    sink.write(event())
    sink.close()
    assert sink.dropped == 1


def test_a_record_that_is_no_json_is_dropped(tmp_path: Path) -> None:
    with JsonlSink(tmp_path, run=run_record()) as sink:
        with pytest.warns(RuntimeWarning, match="cannot be written as JSON"):
            sink.write(event("\ud800"))
        sink.write(event("after"))
    assert details(tmp_path) == ["after"]
    with pytest.raises(TelemetryError, match="cannot be written as JSON"):
        JsonlSink(tmp_path / "other", run=run_record(run="\ud800"))


def test_after_closing_records_are_dropped(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path, run=run_record())
    sink.close()
    sink.close()
    sink.write(event())
    assert sink.dropped == 1


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    with JsonlSink(tmp_path, run=run_record()) as sink:
        threads = [threading.Thread(target=write_many, args=(sink, 200)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(details(tmp_path)) == 800
