"""The command: a real demo end to end, its figures, bad use, and cleaning up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lbbsp.cli.app import run
from lbbsp.interfere import available
from lbbsp.telemetry import read_run

COMMAND = [sys.executable, "-m", "lbbsp.cli"]
SHORT = ["demo", "--workers", "2", "--shares", ".6,.3", "--samples", "40"]


def check_figures(figures: dict[str, Any], out: Path) -> None:
    """What every demo's figures hold."""
    assert figures["schema"] == 1
    assert figures["command"] == "demo"
    assert figures["machine"]["cpu"]
    assert figures["ddp"]["iter_s"] > 0
    assert figures["lbbsp"]["iter_s"] > 0
    assert figures["speedup"] == pytest.approx(figures["ddp"]["iter_s"] / figures["lbbsp"]["iter_s"])
    assert figures["bound"] > 1
    assert 0 < figures["efficiency"] <= 1.01
    assert sum(figures["allocation"]) == 80
    assert figures["shares"] == [0.6, 0.3]
    assert figures["loss_max_abs_diff"] < 1e-2
    assert (out / "demo.png").stat().st_size > 10_000
    assert json.loads((out / "demo.json").read_text())["speedup"] == figures["speedup"]
    for index, mode in enumerate(["plain", "balanced", "balanced", "plain"]):
        record = read_run(out / f"{index}-{mode}")
        assert record.record.mode == mode
        assert len(record.iterations) == 2 * 7


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["quota", "competitors"])
def test_demo(way: str, tmp_path: Path) -> None:
    if way not in available():
        pytest.skip(f"{way} does not work here")
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    done = subprocess.run(
        [*COMMAND, *SHORT, "--iterations", "7", "--way", way, "--out", str(out), "--json", str(figures)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check_figures(json.loads(figures.read_text()), out)
    for said in ("seconds an iteration", "speedup", "bound", "efficiency", "idle, worker 1", "made unequal by"):
        assert said in done.stdout
    assert ("quotas" if way == "quota" else "compet") in done.stdout


@pytest.mark.timeout(200)
def test_demo_with_a_change_in_mid_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [*COMMAND, *SHORT, "--iterations", "9", "--change-at", "4", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sizes = {r.iteration: r.size for r in read_run(out / "1-balanced").iterations if r.rank == 0}
    assert sizes[4] > 40  # worker 0 was the fast one
    assert sizes[8] < 40  # and is the slow one now


@pytest.mark.timeout(150)
@pytest.mark.parametrize("how", ["interrupted", "a worker killed"])
def test_nothing_is_left_when_it_ends_early(how: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, *SHORT, "--iterations", "100", "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started = time.monotonic()
    while not (tmp_path / "out" / "0-plain" / "rank-00001.jsonl").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - started < 100
        time.sleep(0.1)
    family = psutil.Process(process.pid).children(recursive=True)
    workers = [p for p in family if "workload.worker" in " ".join(p.cmdline()) and "run" not in p.cmdline()]
    if how == "interrupted":
        process.send_signal(signal.SIGINT)
    else:
        os.kill(workers[-1].pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if how == "interrupted" else 1)
    assert ("interrupted" if how == "interrupted" else "exit status") in errors
    assert "Traceback (most recent call last)" not in errors.split("the end of")[0]
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    assert not list(Path("/sys/fs/cgroup").glob(f"**/lbbsp-{process.pid}-*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--workers", "1"], "--workers 1: must be at least 2"),
        (["demo", "--workers", "three"], "three"),
        (["demo", "--shares", ".8,.5"], "2 shares for --workers 4"),
        (["demo", "--shares", ".8,.5,.3,zero"], "--shares"),
        (["demo", "--shares", ".8,.5,.3,0"], "must lie between"),
        (["demo", "--shares", ".8,.5,.3,nan"], "must lie between"),
        (["demo", "--samples", "4"], "--samples 4: must be at least 8 and at most 449"),
        (["demo", "--iterations", "2"], "--iterations 2: must be at least 7"),
        (["demo", "--change-at", "0"], "--change-at 0"),
        (["demo", "--change-at", "99"], "--change-at 99"),
        (["demo", "--workers", "2", "--shares", ".5,.5", "--change-at", "3"], "no effect"),
        (["demo", "--way", "magic"], "way='magic'"),
        (["demo", "--json", "/nowhere/at/all.json"], "no file can be written"),
        (["demo", "--out", "pyproject.toml"], "no demo has made"),
        (["demo", "--out", "tests"], "no demo has made"),
        (["demo", "--colour", "red"], "--colour"),
        (["dance"], "dance"),
        (["bench", "hetero", "--repeats", "0"], "--repeats 0"),
        (["bench", "decision", "--repeats", "-1"], "--repeats -1"),
        (["bench", "overhead", "--workers", "0"], "--workers 0"),
    ],
)
def test_bad_use_is_exit_status_2_with_a_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert message in said
    assert "Traceback" not in said


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "demo" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == "0.1.0"


def test_bench_decision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "decision", "--repeats", "1", "--json", str(tmp_path / "d.json")]) == 0
    figures = json.loads((tmp_path / "d.json").read_text())
    assert [row["workers"] for row in figures["decisions"]][-1] == 10_000
    assert all(row["median_us"] > 0 for row in figures["decisions"])


@pytest.mark.timeout(200)
def test_bench_overhead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "overhead", "--repeats", "1", "--json", str(tmp_path / "o.json")]) == 0
    figures = json.loads((tmp_path / "o.json").read_text())
    assert [row["aimed_at_ms"] for row in figures["steps"]] == [5, 20, 50, 200]
    assert all(row["ratio"] > 0 for row in figures["steps"])


@pytest.mark.timeout(240)
def test_bench_hetero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "bench",
        "hetero",
        "--workers",
        "2",
        "--shares",
        ".6,.3",
        "--iterations",
        "7",
        "--repeats",
        "1",
        "--samples",
        "40",
    ]
    assert run([*arguments, "--json", str(tmp_path / "h.json")]) == 0
    figures = json.loads((tmp_path / "h.json").read_text())
    assert figures["command"] == "bench hetero"
    assert figures["share_of_bound"] == pytest.approx(figures["speedup"] / figures["bound"])
