"""Available CPU: quotas of either cgroup version, other processes' load, and what happens without either."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lbbsp.errors import ConfigurationError
from lbbsp.interfere.quota import Quotas
from lbbsp.telemetry.sensors import AvailableCpu

from .trees import stat, version_1, version_2, write

TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """A machine of two cores whose time a test makes pass."""

    def __init__(self, root: Path, cores: int = 2) -> None:
        self.root, self.now_s, self.own_s, self.busy = root, 100.0, 5.0, [1000] * cores
        self.passes(0.0)
        self.sensor = AvailableCpu(
            root=root, clock=lambda: self.now_s, own_s=lambda: self.own_s, cores=frozenset(range(cores))
        )

    def passes(self, seconds: float, *, others: float = 0.0, own: float = 0.0) -> None:
        """``others`` and ``own`` cores busy for some seconds."""
        self.now_s += seconds
        self.own_s += own * seconds
        self.busy[0] += round((others + own) * seconds * TICKS)
        write(self.root, {"proc/stat": stat(*self.busy)})


@pytest.mark.parametrize(
    ("others", "own", "expected"),
    [(0.0, 0.0, 1.0), (0.0, 2.0, 1.0), (0.5, 1.0, 0.75), (1.0, 1.0, 0.5), (2.0, 0.0, 0.05), (5.0, 0.0, 0.05)],
)
def test_other_processes_leave_the_rest(tmp_path: Path, others: float, own: float, expected: float) -> None:
    machine = Machine(tmp_path)
    machine.passes(2.0, others=others, own=own)
    assert machine.sensor.read() == pytest.approx(expected)
    machine.passes(1.0)
    assert machine.sensor.read() == pytest.approx(1.0)


def test_only_the_cores_of_the_affinity_count(tmp_path: Path) -> None:
    write(tmp_path, {"proc/stat": stat(0, 0, 0)})
    now_s = [0.0]
    sensor = AvailableCpu(root=tmp_path, clock=lambda: now_s[0], own_s=lambda: 0.0, cores=frozenset({1}))
    write(tmp_path, {"proc/stat": stat(500 * TICKS, TICKS // 4, 500 * TICKS)})
    now_s[0] = 1.0
    assert sensor.read() == pytest.approx(0.75)


@pytest.mark.parametrize(("content", "cores"), [("50000 100000", 0.5), ("max 100000", math.inf), ("junk", math.inf)])
def test_a_quota_of_version_2(tmp_path: Path, content: str, cores: float) -> None:
    mount = version_2(tmp_path)
    write(mount, {"job/worker/cgroup.controllers": "cpu memory", "job/worker/cpu.max": content})
    write(mount, {"job/worker/cpu.stat": "usage_usec 9\nthrottled_usec 2500000\n"})
    machine = Machine(tmp_path)
    assert machine.sensor.quota() == cores
    assert machine.sensor.throttled_s() == 2.5
    machine.passes(1.0)
    assert machine.sensor.read() == pytest.approx(min(1.0, cores / 2))


def test_a_quota_further_up_holds_too(tmp_path: Path) -> None:
    mount = version_2(tmp_path)
    write(mount, {"job/worker/cgroup.controllers": "cpu", "job/worker/cpu.max": "max 100000"})
    write(mount, {"job/cpu.max": "30000 100000"})
    assert Machine(tmp_path).sensor.quota() == pytest.approx(0.3)


def test_in_a_container_the_mount_is_the_group(tmp_path: Path) -> None:
    mount = version_2(tmp_path, path="/", shown_from="/docker/abc")
    write(mount, {"cgroup.controllers": "cpu", "cpu.max": "20000 100000"})
    assert Machine(tmp_path).sensor.quota() == pytest.approx(0.2)


@pytest.mark.parametrize(("quota", "cores"), [("25000", 0.25), ("-1", math.inf)])
def test_a_quota_of_version_1(tmp_path: Path, quota: str, cores: float) -> None:
    mounts = version_1(tmp_path)
    write(mounts, {"cpu/job/cpu.cfs_quota_us": quota, "cpu/job/cpu.cfs_period_us": "100000"})
    write(mounts, {"cpu/job/cpu.stat": "nr_periods 4\nnr_throttled 2\nthrottled_time 1500000000\n"})
    machine = Machine(tmp_path)
    assert machine.sensor.quota() == cores
    assert machine.sensor.throttled_s() == 1.5


def test_without_proc_the_load_average_has_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    sensor = AvailableCpu(root=tmp_path, clock=lambda: now_s[0], own_s=lambda: 0.5 * now_s[0], cores=frozenset({0, 1}))
    assert sensor.quota() == math.inf
    assert math.isnan(sensor.throttled_s())
    assert math.isnan(sensor.read())  # no time has passed
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 0.0, 0.0))
    now_s[0] = 1.0
    assert sensor.read() == pytest.approx(0.5)


def test_a_busy_neighbour_on_this_very_machine() -> None:
    core = min(os.sched_getaffinity(0))
    # A neighbour of this process only; as its child it would count as its own, which the last line shows.
    sensor, family = (
        AvailableCpu(cores=frozenset({core}), own_s=time.process_time),
        AvailableCpu(cores=frozenset({core})),
    )
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            sensor.read(), family.read()
            time.sleep(0.5)
            assert sensor.read() < 0.5
            assert family.read() > 0.5
        finally:
            process.kill()


def test_a_quota_on_this_very_machine() -> None:
    try:
        quotas = Quotas([0.4])
    except ConfigurationError as error:
        pytest.skip(str(error))
    code = (
        "from lbbsp.interfere import join\n"
        "from lbbsp.telemetry.sensors import AvailableCpu\n"
        "join(0)\n"
        "print(AvailableCpu().quota())\n"
    )
    with quotas:
        environment = os.environ | quotas.environment() | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert float(done.stdout) == pytest.approx(0.4)
