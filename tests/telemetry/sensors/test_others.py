"""Memory, pressure and GPU sensors, and the thread that reads them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lbbsp.errors import ConfigurationError
from lbbsp.telemetry.sensors import AvailableMemory, CpuPressure, GpuSensor, GpuState, Sample, Sensors

from .trees import version_1, version_2, write

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\nHugePages_Total:       0\n"


def test_memory_of_the_machine(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": MEMINFO})
    assert AvailableMemory(root=tmp_path).read() == pytest.approx(0.6)
    assert AvailableMemory(root=tmp_path).limit_bytes() == 1000 * 1024


def test_the_tightest_limit_counts_without_the_cache(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": MEMINFO})
    mount = version_2(tmp_path)
    write(mount, {f"{name}/memory.max": "max" for name in ("job/worker", ".")})
    write(mount, {"job/worker/cgroup.controllers": "memory", "job/worker/memory.current": "5"})
    write(mount, {"job/memory.max": "1000", "job/memory.current": "900", "job/memory.stat": "inactive_file 100\n"})
    sensor = AvailableMemory(root=tmp_path)
    assert sensor.read() == pytest.approx(0.2)
    assert sensor.limit_bytes() == 1000


def test_memory_of_version_1(tmp_path: Path) -> None:
    mounts = version_1(tmp_path)
    write(mounts, {"memory/job/memory.limit_in_bytes": "400", "memory/job/memory.usage_in_bytes": "300"})
    write(mounts, {"memory/job/memory.stat": "total_inactive_file 200\n"})
    write(mounts, {"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "1"})
    assert AvailableMemory(root=tmp_path).read() == pytest.approx(0.75)


def test_memory_where_nothing_can_be_read(tmp_path: Path) -> None:
    assert math.isnan(AvailableMemory(root=tmp_path).read())
    assert AvailableMemory(root=tmp_path).limit_bytes() == math.inf


def test_memory_of_this_machine() -> None:
    assert 0 < AvailableMemory().read() < 1
    assert 0 < AvailableMemory().limit_bytes() < math.inf


PSI = "some avg10=32.80 avg60=1.00 avg300=0.50 total=448\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def test_pressure_of_the_own_group_before_the_machines(tmp_path: Path) -> None:
    mount = version_2(tmp_path)
    write(tmp_path, {"proc/pressure/cpu": PSI})
    write(mount, {"job/worker/cgroup.controllers": "cpu"})
    assert CpuPressure(root=tmp_path).read() == pytest.approx(0.328)
    write(mount, {"job/worker/cpu.pressure": PSI.replace("32.80", "5.00")})
    assert CpuPressure(root=tmp_path).read() == pytest.approx(0.05)


@pytest.mark.parametrize("content", [None, "", "some", "some average=3", "some avg10=x"])
def test_pressure_where_the_kernel_has_none(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        write(tmp_path, {"proc/pressure/cpu": content})
    assert math.isnan(CpuPressure(root=tmp_path).read())


class Library:
    """The management library with one device at half its load; fails when told to."""

    def __init__(self) -> None:
        self.fails = self.ended = False

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None:
        self.ended = True

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index:
            raise RuntimeError("Invalid Argument")
        return "handle"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        if self.fails:
            raise RuntimeError("GPU is lost")
        return SimpleNamespace(gpu=50)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(total=80, free=20, used=60)


def test_a_gpu_its_loss_and_its_absence() -> None:
    library = Library()
    sensor = GpuSensor(library=library)
    assert sensor.read() == GpuState(0.5, 0.25)
    library.fails = True
    assert math.isnan(sensor.read().utilisation)
    assert "GPU is lost" in sensor.why_not
    sensor.close()
    sensor.close()
    assert library.ended
    absent = GpuSensor(3, library=library)
    assert math.isnan(absent.read().memory)
    assert "Invalid Argument" in absent.why_not


def test_without_a_gpu_or_its_library_readings_are_unknown() -> None:
    sensor = GpuSensor(10**6)  # more than any machine has
    assert math.isnan(sensor.read().utilisation)
    assert sensor.why_not
    sensor.close()


def wait_for(condition: Any) -> None:
    end_s = time.monotonic() + 10
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.005)
    assert condition()


def test_sensors_are_read_beside_and_a_broken_one_ends_nothing() -> None:
    answers: Iterator[Sample | OSError] = iter([Sample(cpu=0.5), OSError("gone"), Sample(cpu=0.75)])

    def read() -> Sample:
        answer = next(answers, Sample(cpu=1.0))
        if isinstance(answer, OSError):
            raise answer
        return answer

    sensors = Sensors(period_s=0.01, read=read)
    assert math.isnan(sensors.latest.cpu)
    wait_for(lambda: sensors.latest.cpu == 1.0)
    assert "gone" in sensors.why_not
    sensors.close()
    sensors.close()


def test_this_machine_is_sampled() -> None:
    sensors = Sensors(period_s=0.02)
    wait_for(lambda: 0 < sensors.latest.cpu <= 1 and 0 < sensors.latest.memory < 1)
    sensors.close()


@pytest.mark.parametrize("period_s", [0.0, -1.0, math.nan, math.inf])
def test_periods_are_checked(period_s: float) -> None:
    with pytest.raises(ConfigurationError, match="period_s"):
        Sensors(period_s=period_s)
