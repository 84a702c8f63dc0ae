"""Sensors of what a worker has at hand: CPU, memory, GPU; each with its unit and its fallback.

Every sensor is an object with ``read()``, which returns a number or NaN where it cannot measure, and never
raises because of what a machine lacks.  `Sensors` reads all of them on a thread of its own.
"""

from lbbsp.telemetry.sensors.cpu import AvailableCpu
from lbbsp.telemetry.sensors.gpu import GpuSensor, GpuState
from lbbsp.telemetry.sensors.memory import AvailableMemory
from lbbsp.telemetry.sensors.pressure import CpuPressure
from lbbsp.telemetry.sensors.sampler import Sample, Sensors

__all__ = ["AvailableCpu", "AvailableMemory", "CpuPressure", "GpuSensor", "GpuState", "Sample", "Sensors"]
