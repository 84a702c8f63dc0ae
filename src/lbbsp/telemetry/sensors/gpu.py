"""GPU utilisation and memory through NVIDIA's management library."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

__all__ = ["GpuSensor", "GpuState"]


@dataclass(frozen=True, slots=True)
class GpuState:
    """Of one device: ``utilisation`` is the part of the last sample period in which a kernel ran (fraction, also
    other processes' kernels), ``memory`` the part of its memory that is free (fraction); NaN where unknown.
    """

    utilisation: float = math.nan
    memory: float = math.nan


class GpuSensor:
    """Reads one GPU; without the library, a driver or the device every reading is unknown.

    Args:
        index: of the device, as the management library counts (``CUDA_VISIBLE_DEVICES`` does not change it).
        library: ``pynvml``, which nvidia-ml-py provides; another object serves tests.
    """

    unit = "fractions"

    def __init__(self, index: int = 0, *, library: Any = None) -> None:
        self._library, self._handle = library, None
        self.why_not = ""
        try:
            self._library = library if library is not None else importlib.import_module("pynvml")
            self._library.nvmlInit()
            self._handle = self._library.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:  # the library raises its own kinds, which cannot be named without it
            self.why_not = f"{type(error).__name__}: {error}"

    def read(self) -> GpuState:
        """The device's state now."""
        if self._handle is None:
            return GpuState()
        try:
            rates = self._library.nvmlDeviceGetUtilizationRates(self._handle)
            memory = self._library.nvmlDeviceGetMemoryInfo(self._handle)
        except Exception as error:
            self.why_not = f"{type(error).__name__}: {error}"
            return GpuState()
        return GpuState(rates.gpu / 100.0, memory.free / memory.total if memory.total else math.nan)

    def close(self) -> None:
        """Let go of the library; idempotent."""
        if self._handle is not None:
            self._handle = None
            self._library.nvmlShutdown()
