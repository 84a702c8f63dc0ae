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

    def pause(self) -> None:
        """Local compute ends here for now: others may be waited for."""
        ...

    def resume(self) -> None:
        """Local compute goes on, if it was paused."""
        ...

    def stop(self, size: int) -> Lap:
        """The last gradient of ``size`` samples is ready (or was, at the pause); the newest lap that can be read."""
        ...


class CpuStopwatch:
    """Wall-clock laps on the host."""

    def __init__(self) -> None:
        self._started_s = math.nan
        self._excluded_s = 0.0
        self._paused_s: float | None = None

    def start(self) -> None:
        """The batch is being asked for."""
        self._started_s = time.perf_counter()
        self._excluded_s = 0.0
        self._paused_s = None

    def exclude(self, seconds: float) -> None:
        """Take a wait out."""
        self._excluded_s += seconds

    def stop(self, size: int) -> Lap:
        """The lap that ends now, or has ended at the pause."""
        ended_s = time.perf_counter() if self._paused_s is None else self._paused_s
        return Lap(size, ended_s - self._started_s - self._excluded_s)

    def pause(self) -> None:
        """Take what follows out of the lap."""
        if self._paused_s is None:
            self._paused_s = time.perf_counter()

    def resume(self) -> None:
        """Go on."""
        if self._paused_s is not None:
            self._excluded_s += time.perf_counter() - self._paused_s
            self._paused_s = None


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
        self._paused: Any = None
        self._pauses: list[tuple[Any, Any]] = []
        self._pending: deque[tuple[int, Any, Any, float, list[tuple[Any, Any]]]] = deque(maxlen=8)

    def start(self) -> None:
        """Record the start event."""
        self._started = self._recorded()
        self._excluded_s = 0.0
        self._paused, self._pauses = None, []

    def exclude(self, seconds: float) -> None:
        """Take a wait out."""
        self._excluded_s += seconds

    def pause(self) -> None:
        """Record where local compute pauses on the stream."""
        if self._paused is None:
            self._paused = self._recorded()

    def resume(self) -> None:
        """Record where it goes on."""
        if self._paused is not None:
            self._pauses.append((self._paused, self._recorded()))
            self._paused = None

    def stop(self, size: int) -> Lap:
        """Record the end event, unless paused; return the newest lap whose events have passed."""
        newest = Lap(0, math.nan)
        while self._pending and self._pending[0][2].query():
            lap_size, started, ended, excluded_s, pauses = self._pending.popleft()
            paused_ms = math.fsum(paused.elapsed_time(resumed) for paused, resumed in pauses)
            newest = Lap(lap_size, (started.elapsed_time(ended) - paused_ms) / 1000.0 - excluded_s)
        ended = self._recorded() if self._paused is None else self._paused
        self._pending.append((size, self._started, ended, self._excluded_s, self._pauses))
        return newest

    def _recorded(self) -> Any:
        event = self._event()
        event.record()
        return event


def stopwatch_for(device: torch.device) -> Stopwatch:
    """The stopwatch that suits ``device``."""
    return CudaStopwatch(device) if device.type == "cuda" else CpuStopwatch()
