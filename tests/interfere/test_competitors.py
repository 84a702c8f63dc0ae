"""Competing busy processes, as an unprivileged user."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lbbsp.errors import ConfigurationError
from lbbsp.interfere import available, interfere, join
from lbbsp.interfere.base import ENVIRONMENT
from lbbsp.interfere.competitors import Competitors

from .conftest import Launcher, left_behind


def busy_children(pid: int | None = None) -> list[psutil.Process]:
    """The competing processes of a launcher (this process), which may have other children too."""
    return [child for child in psutil.Process(pid).children() if "_busy.py" in str(child.cmdline())]


def test_each_worker_gets_its_share_and_the_changed_one(launch: Callable[..., Launcher], as_nobody: list[str]) -> None:
    launcher = launch("competitors", [0.8, 0.5, 0.3, 0.2], as_nobody)
    assert "busy processes run on core" in launcher.description
    assert {psutil.Process(pid).uids().real for pid in launcher.pids} != {0}
    launcher.assert_shares()
    assert launcher.set_shares([0.2, 0.3, 0.5, 0.8]) is None
    wanted, _ = launcher.measure(0.1)
    assert wanted[3] > wanted[2] > wanted[1] > wanted[0]
    launcher.assert_shares()
    assert launcher.finish() == [2] * 4


def test_change_out_of_reach_is_refused_and_changes_nothing(
    launch: Callable[..., Launcher], as_nobody: list[str]
) -> None:
    launcher = launch("competitors", [0.9, 0.2, 0.2], as_nobody)
    before, _ = launcher.measure(0.05)
    error = launcher.set_shares([0.9, 0.5, 0.0001])
    assert error is not None
    assert "nice ends at 19" in error
    assert launcher.measure(0.05)[0] == before
    errors = [launcher.set_shares([0.9, *pair]) for pair in [(0.4, 0.1), (0.1, 0.4)] * 3]
    assert errors[0] is None
    assert errors[-1] is not None  # without root the nices run out
    assert launcher.set_shares([0.9, 0.2, 0.2]) is None


def test_killed_launcher_takes_its_competitors_along(launch: Callable[..., Launcher]) -> None:
    launcher = launch("competitors", [0.5, 0.2])
    busy = busy_children(launcher.process.pid)
    assert len(busy) >= 2
    launcher.kill()
    _, alive = psutil.wait_procs(busy, timeout=10)
    assert alive == []
    psutil.wait_procs([psutil.Process(pid) for pid in launcher.pids if psutil.pid_exists(pid)], timeout=10)
    Competitors([0.5]).close()  # the next start
    assert not any(f"lbbsp-{launcher.process.pid}-" in what for what in left_behind())


def test_competitors_end_after_their_lifetime() -> None:
    with Competitors([0.5], lifetime_s=0.2):
        (busy,) = busy_children()
        end_s = time.monotonic() + 10
        while busy.status() != psutil.STATUS_ZOMBIE and time.monotonic() < end_s:
            time.sleep(0.02)
        assert busy.status() == psutil.STATUS_ZOMBIE


def test_worker_that_joins_late_gets_the_shares_of_then(two_cores: None) -> None:
    with Competitors([1.0, 0.25]) as competitors:
        environment = os.environ | competitors.environment() | {"PYTHONPATH": os.pathsep.join(sys.path)}
        competitors.set_shares([0.25, 1.0])
        slow_core = busy_children()[0].cpu_affinity()
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), "0"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "joined\n"
                assert psutil.Process(process.pid).cpu_affinity() == slow_core
            finally:
                process.kill()


def test_fork_of_the_launcher_does_not_close_it() -> None:
    with Competitors([0.5]) as competitors:
        pid = os.fork()
        if pid == 0:
            competitors.close()
            os._exit(0)
        os.waitpid(pid, 0)
        directory = Path(json.loads(competitors.environment()[ENVIRONMENT])["directory"])
        assert directory.exists()
        assert len(busy_children()) == 1
    competitors.close()
    with pytest.raises(ConfigurationError, match="closed"):
        competitors.set_shares([0.5])


def test_auto_takes_competitors_without_the_right_to_make_quotas(as_nobody: list[str]) -> None:
    code = (
        "from lbbsp.interfere import available, interfere\n"
        "print(*available())\n"
        "with interfere([0.8, 0.4]) as unequal: print(unequal.describe())\n"
        "try: interfere([0.8], way='quota')\n"
        "except ValueError as error: print(error)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*as_nobody, sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    ways, description, error = done.stdout.splitlines()
    if ways != "competitors":
        pytest.skip("this user may make quotas")
    assert description.startswith("Without CPU quotas")
    assert "use way='competitors'" in error


@pytest.mark.parametrize("way", ["quota", "competitors"])
def test_leaving_the_interpreter_removes_what_was_not_closed(way: str) -> None:
    if way not in available():
        pytest.skip(f"{way}: not possible here")
    code = f"from lbbsp.interfere import interfere; kept = interfere([0.5], way={way!r})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_join_without_a_launcher_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    cores = os.sched_getaffinity(0)
    join(0)
    assert os.sched_getaffinity(0) == cores


@pytest.mark.parametrize("text", ["{", "[]", '{"way": "magic"}'])
def test_join_with_a_broken_environment_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(ENVIRONMENT, text)
    with pytest.raises(ConfigurationError, match="pass that on unchanged"):
        join(0)


def test_join_after_the_launcher_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Competitors([0.5]) as competitors:
        for name, value in competitors.environment().items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ConfigurationError, match="worker 1: must be 0 to 0"):
            join(1)
        with pytest.raises(ConfigurationError, match="worker 0 is the launcher's own process"):
            join(0)
    with pytest.raises(ConfigurationError, match="launcher must be alive"):
        join(0)


NAN = float("nan")


@pytest.mark.parametrize("way", ["auto", "quota", "competitors"])
@pytest.mark.parametrize("shares", [[], [0.0], [-0.5], [NAN], [0.5, 1e9], [0.5, float("inf")], ["x"], None])
def test_bad_shares_are_refused(way: str, shares: list[float]) -> None:
    with pytest.raises(ConfigurationError, match="share"):
        interfere(shares, way=way)


def test_more_than_a_core_needs_quotas() -> None:
    with pytest.raises(ConfigurationError, match="at most 1 cores"):
        Competitors([1.5])


@pytest.mark.parametrize("shares", [[0.5], [0.5, 0.5, 0.5], [0.5, NAN]])
def test_bad_changes_are_refused(shares: list[float]) -> None:
    for way in available():
        with interfere([0.5, 0.5], way=way) as interference, pytest.raises(ConfigurationError):
            interference.set_shares(shares)


def test_unknown_way_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'auto', 'quota', 'competitors'"):
        interfere([0.5], way="magic")
