"""Reads the sensors on a thread of its own, so that no step waits for them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from lbbsp.errors import ConfigurationError
from lbbsp.telemetry.sensors.cpu import AvailableCpu
from lbbsp.telemetry.sensors.gpu import GpuSensor, GpuState
from lbbsp.telemetry.sensors.memory import AvailableMemory
from lbbsp.telemetry.sensors.pressure import CpuPressure

__all__ = ["Sample", "Sensors"]


@dataclass(frozen=True, slots=True)
class Sample:
    """What the sensors said last; NaN where unknown.

    Args:
        cpu: c_i, available CPU, fraction.
        memory: m_i, available memory, fraction.
        pressure: fraction of the last 10 s in which some task waited for a core.
        gpu: utilisation and free memory of the device.
    """

    cpu: float = math.nan
    memory: float = math.nan
    pressure: float = math.nan
    gpu: GpuState = field(default_factory=GpuState)


class Sensors:
    """Samples every ``period_s`` on a daemon thread; `latest` costs an attribute look-up.

    Args:
        period_s: seconds between samples.
        gpu: index of the GPU to read; None for none.
        read: makes a sample; the machine's own sensors unless a test gives another.

    Raises:
        ConfigurationError: the period is not positive and finite.
    """

    def __init__(
        self, *, period_s: float = 1.0, gpu: int | None = None, read: Callable[[], Sample] | None = None
    ) -> None:
        if not 0 < period_s < math.inf:
            raise ConfigurationError(f"period_s={period_s}: must be a positive number of seconds")
        self._period_s = period_s
        self._gpu = GpuSensor(gpu) if gpu is not None else None
        self._cpu, self._memory, self._pressure = AvailableCpu(), AvailableMemory(), CpuPressure()
        self._read = read or self._read_all
        self.latest = Sample()
        self.why_not = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lbbsp-sensors", daemon=True)
        self._thread.start()

    def _read_all(self) -> Sample:
        gpu = self._gpu.read() if self._gpu else GpuState()
        return Sample(self._cpu.read(), self._memory.read(), self._pressure.read(), gpu)

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s):
            try:
                self.latest = self._read()
            except Exception as error:  # a sensor must not end the training, nor go on with what it last said
                self.latest, self.why_not = Sample(), f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """End the thread; idempotent."""
        self._stopped.set()
        self._thread.join(timeout=5.0)
        if self._gpu is not None:
            self._gpu.close()
