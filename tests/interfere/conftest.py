"""Launchers with real worker processes, and a check that no test leaves anything behind."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

import lbbsp
from lbbsp.errors import ConfigurationError
from lbbsp.interfere import available
from lbbsp.interfere.cgroups import find_hierarchy

HERE = Path(__file__).parent
CORES = 2


class Launcher:
    """A launcher process with one worker for each share, all of them joined."""

    def __init__(self, way: str, shares: Sequence[float], prefix: Sequence[str] = ()) -> None:
        source = str(Path(lbbsp.__file__).parents[1])
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(HERE / "launcher.py"), way, json.dumps(shares)],
            env=os.environ | {"PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        first = self._read()
        self.pids: list[int] = first["pids"]
        self.description: str = first["describe"]

    def measure(self, duration_s: float = 0.5) -> tuple[list[float], list[float]]:
        """The shares by design and those that the workers get now."""
        answer = self._ask("measure", duration_s)
        return answer["shares"], answer["measured"]

    def assert_shares(self) -> None:
        """In one window of five every share is right to a fifth: others use this machine too."""
        seen = []
        for _ in range(5):
            wanted, measured = self.measure()
            if measured == pytest.approx(wanted, rel=0.2, abs=0.02):
                return
            seen.append([round(share, 3) for share in measured])
        pytest.fail(f"wanted {wanted}, got {seen}")

    def set_shares(self, shares: Sequence[float]) -> str | None:
        """Returns the error, if any."""
        error: str | None = self._ask("shares", list(shares)).get("error")
        return error

    def finish(self) -> list[int]:
        """End it in good order; how many cores each worker had after the interference was closed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        cores: list[int] = self._read()["cores"]
        assert self.process.wait(10) == 0
        return cores

    def kill(self) -> None:
        """SIGKILL, and close the pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _ask(self, command: str, value: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([command, value]) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the launcher has died"
        answer: dict[str, Any] = json.loads(line)
        return answer


@pytest.fixture
def launch(two_cores: None) -> Iterator[Callable[..., Launcher]]:
    """Starts launchers; ends those that the test did not end."""
    launchers: list[Launcher] = []

    def start(way: str, shares: Sequence[float], prefix: Sequence[str] = ()) -> Launcher:
        launchers.append(Launcher(way, shares, prefix))
        return launchers[-1]

    yield start
    for launcher in launchers:
        if launcher.process.poll() is None:
            launcher.finish()
        launcher.kill()


@pytest.fixture
def two_cores() -> Iterator[None]:
    """This process, and so its children, on two cores: the usual case of fewer cores than workers."""
    before = os.sched_getaffinity(0)
    if len(before) < CORES:
        pytest.skip("needs 2 cores")
    os.sched_setaffinity(0, sorted(before)[:CORES])
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture(scope="session")
def quotas_work() -> None:
    if "quota" not in available():
        pytest.skip("no right to make CPU quotas here")


@pytest.fixture(scope="session")
def as_nobody() -> list[str]:
    """What to put before a command so that it runs without root's rights (but reads root's files)."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    return [
        *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
        *("--bounding-set=-all,+dac_read_search", "--inh-caps=-all,+dac_read_search"),
        "--ambient-caps=-all,+dac_read_search",
    ]


def left_behind() -> list[str]:
    """Processes, cgroups and directories of this library whose launcher is this process or dead."""

    def is_dead(pid: int) -> bool:
        return pid == os.getpid() or not psutil.pid_exists(pid)

    left = [f"child {child.pid}" for child in psutil.Process().children(recursive=True)]
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if len(line) > 4 and line[3].endswith("_busy.py") and is_dead(int(line[4])):
            left.append(f"busy process {process.pid}")
    with contextlib.suppress(ConfigurationError):
        for directory in (find_hierarchy().directory, Path(tempfile.gettempdir())):
            left += [str(path) for path in directory.glob("lbbsp-*-*-*") if is_dead(int(path.name.split("-")[1]))]
    return left


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    before = set(left_behind())  # by others, killed on this machine
    yield
    assert set(left_behind()) - before == set()
