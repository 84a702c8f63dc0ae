"""lbbsp interfere: workers of an unsuspecting command get a trace's shares, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lbbsp.cli.app import run as lbbsp
from lbbsp.interfere import available

TRACE = "t_s,0,1\n0,0.7,0.2\n"

# A command that starts two workers as torchrun does; each spins and writes how much CPU it got.
LAUNCHER = """
import os, subprocess, sys
code = '''
import os, time
rank = os.environ["LOCAL_RANK"]
time.sleep(0.6)  # until it is in its place
wall, cpu = time.perf_counter(), time.process_time()
while time.perf_counter() - wall < 1.5: pass
print(rank, (time.process_time() - cpu) / 1.5, os.nice(0), *os.sched_getaffinity(0), flush=True)
'''
workers = [subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"LOCAL_RANK": str(i)}) for i in range(2)]
sys.exit(sum(worker.wait() for worker in workers))
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "shares.csv"
    path.write_text(TRACE)
    return path


def interfered(trace: Path, *command: str, way: str = "auto") -> list[str]:
    return [sys.executable, "-m", "lbbsp.cli", "interfere", str(trace), "--way", way, "--", *command]


@pytest.mark.parametrize("way", ["quota", "competitors"])
def test_workers_that_know_nothing_get_their_shares(trace: Path, way: str) -> None:
    if way not in available() or len(os.sched_getaffinity(0)) < 2:
        pytest.skip(f"{way} on two cores: not possible here")
    done = subprocess.run(
        interfered(trace, sys.executable, "-c", LAUNCHER, way=way), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    got = {rank: place for rank, *place in (line.split() for line in done.stdout.splitlines())}
    if way == "quota":  # upper limits, which also hold where others use this machine
        assert float(got["0"][0]) < 0.9
        assert float(got["1"][0]) < 0.4
    else:
        assert [len(got[rank]) for rank in "01"] == [3, 3]  # on one core each
        assert int(got["1"][1]) > int(got["0"][1]) or got["0"][2] != got["1"][2]
    assert "Changing 0 times" in done.stderr


def test_a_command_that_fails_and_one_that_is_none(trace: Path) -> None:
    assert lbbsp(["interfere", str(trace), "--", sys.executable, "-c", "raise SystemExit(3)"]) == 1
    assert lbbsp(["interfere", str(trace), "--", "/no/such/command"]) == 2
    assert lbbsp(["interfere", str(trace)]) == 2
    assert lbbsp(["interfere", str(trace.with_name("none.csv")), "--", "true"]) == 2
    trace.write_text("t_s,0\n0,7000\n")
    assert lbbsp(["interfere", str(trace), "--", "true"]) == 2


@pytest.mark.parametrize("way", ["quota", "competitors"])
def test_a_kill_leaves_no_group_and_no_competitor(trace: Path, way: str) -> None:
    if way not in available():
        pytest.skip(f"{way}: not possible here")
    process = subprocess.Popen(
        interfered(trace, sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", way=way),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.readline()  # the command runs
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    process.stdout.close()
    commands = [p for p in family if "time.sleep(60)" in " ".join(_command(p))]
    helpers = [p for p in family if p not in commands]
    assert helpers  # a guard, or competitors
    _, alive = psutil.wait_procs(helpers, timeout=20)
    assert alive == []
    end_s = time.monotonic() + 10
    while (left := _groups(process.pid)) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert left == []
    for command in commands:
        command.send_signal(signal.SIGKILL)
    psutil.wait_procs(commands, timeout=10)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _groups(pid: int) -> list[str]:
    return [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/lbbsp-{pid}-*")]


def test_the_benchmark_under_a_trace_runs_both_sides(trace: Path, tmp_path: Path) -> None:
    trace.write_text("t_s,0,1\n0,0.8,0.4\n1,0.4,0.8\n")
    out = tmp_path / "figures.json"
    options = ["--iterations", "7", "--repeats", "1", "--samples", "16"]
    assert lbbsp(["bench", "hetero", "--trace", str(trace), *options, "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert set(figures["efficiency"]) == {"balanced", "proportional-last"}
    assert all(0 < value <= 1 for value in figures["efficiency"].values())
    assert figures["trace"] == "shares.csv"
    assert [len(rows) for rows in figures["segments"].values()] == [1, 1]


def test_bad_traces_and_options_without_effect_end_the_benchmark(trace: Path) -> None:
    assert lbbsp(["bench", "hetero", "--trace", str(trace), "--shares", ".5,.5"]) == 2
    assert lbbsp(["bench", "hetero", "--trace", str(trace.with_name("none.csv"))]) == 2
    trace.write_text("t_s,0\n0,0.5\n")
    assert lbbsp(["bench", "hetero", "--trace", str(trace)]) == 2
