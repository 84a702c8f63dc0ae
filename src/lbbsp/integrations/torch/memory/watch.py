"""Learns a rank's memory cap while it trains, from its peaks."""

from __future__ import annotations

import math

import torch

from lbbsp.core.memory import PeakState, UpperFit
from lbbsp.integrations.torch.memory.base import MemoryProbe, Reading
from lbbsp.integrations.torch.memory.cuda import CudaMemory
from lbbsp.integrations.torch.memory.resident import ResidentMemory

__all__ = ["MemoryWatch", "probe_for"]


class MemoryWatch:
    """From readings before and after a batch's forward and backward pass to the rank's cap.

    High-water marks only rise, so a batch's own peak is known just when it is the highest so far, which it is
    when a size is run that was not run before: the case that counts.  A mark that rose between two batches (an
    evaluation, the optimizer's first step) is taken for no batch's.

    Args:
        probe: of the memory.
        fit: from peaks to the cap.
    """

    def __init__(self, probe: MemoryProbe, fit: UpperFit) -> None:
        self.probe, self.fit = probe, fit
        self.state = PeakState()
        self.limit_bytes = math.nan
        self._before: Reading | None = None

    def begin(self) -> None:
        """The batch is being asked for."""
        self._before = self.probe.read()

    def end(self, size: int) -> float:
        """The last gradient of ``size`` samples is ready; the rank's cap, infinite while unknown."""
        before, self._before = self._before, None
        after = self.probe.read()
        if before is None or after is None:
            return math.inf
        own = after.peak_bytes if after.peak_bytes > before.peak_bytes else None
        self.state = self.fit.step(self.state, size=size, peak_bytes=own, resting_bytes=before.held_bytes)
        self.limit_bytes = after.limit_bytes
        return self.fit.cap(self.state, limit_bytes=after.limit_bytes)


def probe_for(device: torch.device) -> MemoryProbe:
    """The probe that suits ``device``."""
    return CudaMemory(device) if device.type == "cuda" else ResidentMemory()
