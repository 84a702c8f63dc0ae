"""Traces are read as documented, and a broken file is refused with the reason."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from lbbsp.errors import ConfigurationError
from lbbsp.sim.traces import find_traces, read_alibaba2018, read_csv, read_nab, read_pai

HEADER = "iteration,worker,size,compute_s,cpu,memory\n"
GOOD = HEADER + "0,0,10,1.0,0.5,\n0,1,20,1.0,0.25,0.75\n1,0,10,2.0,0.5,\n1,1,20,4.0,1,0.5\n"


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_generic(tmp_path: Path) -> None:
    trace = read_csv(written(tmp_path / "own.csv", GOOD))
    assert trace.speeds.tolist() == [[10.0, 20.0], [5.0, 5.0]]
    assert trace.cpu.tolist() == [[0.5, 0.25], [0.5, 1.0]]
    assert np.isnan(trace.memory[:, 0]).all()
    assert trace.measured
    assert trace.name == "own"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("iteration,worker,size,compute_s\n0,0,1,1\n1,0,1,1\n", "no column cpu, memory"),
        ("", "no column iteration"),
        (HEADER + "0,0,10,1.0,,\n", "1 row"),
        (HEADER + "1,0,10,1.0,,\n0,0,10,1.0,,\n", "iteration 0 does not come after"),
        (HEADER + "0,0,10,nan,,\n1,0,10,1.0,,\n", "compute_s is 'nan' in row 1"),
        (HEADER + "0,0,10,1.0,,\n1,0,10,-1.0,,\n", "compute_s is '-1.0' in row 2"),
        (HEADER + "0,0,10,1.0,,\n1,0,10,0,,\n", "compute_s is 0 in row 2"),
        (HEADER + "0,0,ten,1.0,,\n1,0,10,1.0,,\n", "size is 'ten'"),
        (HEADER + "0,0,10,1.0,.5,\n1,0,10,1.0,50,\n", "not percent"),
        (HEADER + "0,0,10,1.0,,\n1,0,10,1000.0,,\n", "milliseconds mixed"),
        (HEADER + "0,0,10,1.0,,\n1,0,10\n", "line 3: 3 cells"),
        (HEADER + "0,0,10,1.0,,\n0,1,10,1,,\n1,0,10,1,,\n", "3 rows for 2 iterations of 2 workers"),
        (HEADER + "0,0,10,1.0,,\n0,1,10,1,,\n", "1 iteration"),
    ],
)
def test_broken_generic_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_csv(written(tmp_path / "own.csv", text))


def test_truncated_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(GOOD.encode())
    path = tmp_path / "own.csv.gz"
    path.write_bytes(whole)
    assert read_csv(path).workers == 2
    for broken in (whole[:-12], whole[:20], b"no gzip"):
        path.write_bytes(broken)
        with pytest.raises(ConfigurationError, match=r"own\.csv\.gz"):
            read_csv(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_csv(tmp_path / "none.csv")


def test_alibaba_is_sorted_held_and_masked(tmp_path: Path) -> None:
    rows = [f"a,{t},{min(90, 50 + t // 60)},40,,,1,1,5" for t in range(0, 3600, 60) if not 1200 < t < 2400]
    rows += [f"b,{t},99,40,,,1,1,5" for t in range(0, 3600, 30)]
    rows += ["b,30,99,40,,,1,1,5", "late,3000,1,1,,,,,", "late,3500,1,1,,,,,"]
    trace = read_alibaba2018(written(tmp_path / "machine_usage.csv", "\n".join(reversed(rows))))
    assert trace.workers == 2
    assert trace.speeds[:3, 0].tolist() == pytest.approx([0.5, 0.49, 0.48])
    assert (trace.speeds[:, 1] == 0.05).all()
    assert trace.iterations == 59 - 20  # one gap of 1,200 s is left out
    assert np.allclose(trace.memory, 0.6)
    assert not trace.measured
    with pytest.raises(ConfigurationError, match=r"150 %"):
        read_alibaba2018(written(tmp_path / "bad.csv", "a,0,150,1,,,,,\na,60,2,1,,,,,\n"))


def test_pai_holds_what_is_missing(tmp_path: Path) -> None:
    text = ",worker,gpu,time,batch_time_norm\n"
    rows = [(0, 1, 100), (1, 1, 200), (0, 11, 50), (0, 11, 50), (0, 21, 25), (1, 21, 400), (0, 31, 10), (1, 25, 9)]
    text += "".join(f"{n},{w},25,{t},{s}\n" for n, (w, t, s) in enumerate(rows))
    trace = read_pai(written(tmp_path / "job_1_norm.csv", text))
    assert (1 / trace.speeds).round(9).tolist() == [[100, 200], [50, 200], [25, 400]]
    assert trace.name == "pai-job_1"
    with pytest.raises(ConfigurationError, match="time 5 does not come after"):
        read_pai(written(tmp_path / "job_2_norm.csv", text + "9,0,25,5,77\n"))
    with pytest.raises(ConfigurationError, match="must be positive"):
        read_pai(written(tmp_path / "job_3_norm.csv", text + "9,0,25,41,0\n"))


def test_nab_lays_machines_beside_each_other(tmp_path: Path) -> None:
    start = "timestamp,value\n2014-02-14 14:30:00,25\n"
    written(tmp_path / "ec2_cpu_utilization_a.csv", start + "2014-02-14 14:35:00,99\n2014-02-14 14:40:00,1\n")
    second = written(tmp_path / "ec2_cpu_utilization_b.csv", start + "2014-02-14 14:35:00,50\n")
    assert read_nab(tmp_path).speeds.tolist() == [[0.75, 0.75], [0.05, 0.5]]
    for line, message in (
        ("2014-02-14 14:30:00,1\n", "does not come after"),
        ("yesterday,1\n", "is no time"),
        ("2014-02-14 14:35:00,120\n", "120 %"),
    ):
        written(second, start + line)
        with pytest.raises(ConfigurationError, match=message):
            read_nab(tmp_path)
    with pytest.raises(ConfigurationError, match="no file"):
        read_nab(tmp_path / "nowhere")


def test_all_below_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no traces"):
        find_traces(tmp_path)
    written(tmp_path / "recorded" / "own.csv", GOOD)
    assert [trace.name for trace in find_traces(tmp_path)] == ["own"]
