"""Stopwatches for a rank's own compute, on the CPU and on CUDA devices.

Both measure from asking for the batch to the last gradient being ready, and never the wait for others.  The
CPU's answer is there at once; CUDA's is read when its events have passed, one iteration later, so that the
device is never synchronised for it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

import torch

__all__ = ["CpuStopwatch", "CudaStopwatch", "Lap", "Stopwatch", "stopwatch_for"]


@dataclass(frozen=True, slots=True)
class Lap:
    """A finished measurement: ``size`` samples took ``seconds`` (NaN and 0 where none is finished yet)."""

    size: int
    seconds: float


class Stopwatch(Protocol):
    """Measures laps of local compute."""

    def start(self) -> None:
        """The batch is being asked for."""
        ...

    def exclude(self, seconds: float) -> None:
        """Take ``seconds`` of waiting for others out of the current lap."""
        ...

    def stop(self, size: int) -> Lap:
        """The last gradient of ``size`` samples is ready; return the newest lap that can be read."""
        ...


class CpuStopwatch:
    """Wall-clock laps on the host."""

    def __init__(self) -> None:
        self._started_s = math.nan
        self._excluded_s = 0.0

    def start(self) -> None:
        """The batch is being asked for."""
        self._started_s = time.perf_counter()
        self._excluded_s = 0.0

    def exclude(self, seconds: float) -> None:
        """Take a wait out."""
        self._excluded_s += seconds

    def stop(self, size: int) -> Lap:
        """The lap that ends now."""
        return Lap(size, time.perf_counter() - self._started_s - self._excluded_s)


class CudaStopwatch:
    """Laps on a device's stream, by events.

    An event recorded when the batch is asked for passes when the work queued before it (the optimizer's step,
    which follows the all-reduce) has passed, so the lap holds the wait for input, the forward and the
    backward pass, and no wait for others.  Host waits to ``exclude`` are no part of it unless the stream ran
    dry meanwhile, so they are taken out as on the host.

    Args:
        device: the device whose current stream is measured.
        event: makes a timing event with ``record``, ``query`` and ``elapsed_time`` (milliseconds);
            ``torch.cuda.Event`` unless a test has no device.
    """

    def __init__(self, device: torch.device | None = None, *, event: Any = None) -> None:
        self._device = device
        self._event = event or (lambda: torch.cuda.Event(enable_timing=True))
        self._started: Any = None
        self._excluded_s = 0.0
        self._pending: deque[tuple[int, Any, Any, float]] = deque(maxlen=8)

    def start(self) -> None:
        """Record the start event."""
        self._started = self._event()
        self._started.record()
        self._excluded_s = 0.0

    def exclude(self, seconds: float) -> None:
        """Take a wait out."""
        self._excluded_s += seconds

    def stop(self, size: int) -> Lap:
        """Record the end event; return the newest lap whose events have passed."""
        newest = Lap(0, math.nan)
        while self._pending and self._pending[0][2].query():
            lap_size, started, ended, excluded_s = self._pending.popleft()
            newest = Lap(lap_size, started.elapsed_time(ended) / 1000.0 - excluded_s)
        ended = self._event()
        ended.record()
        self._pending.append((size, self._started, ended, self._excluded_s))
        return newest


def stopwatch_for(device: torch.device) -> Stopwatch:
    """The stopwatch that suits ``device``."""
    return CudaStopwatch(device) if device.type == "cuda" else CpuStopwatch()
