"""A CUDA device's memory, from torch's allocator statistics."""

from __future__ import annotations

from typing import Any

import torch

from lbbsp.integrations.torch.memory.base import Reading

__all__ = ["CudaMemory"]


class CudaMemory:
    """What torch's allocator holds on a device, and could hold.

    The peak is the allocator's own since the process started; it is not reset, because users log it.  Memory that the
    allocator has reserved but not handed out can be used again, so the limit is what it has reserved plus what is free
    on the device; ``torch.cuda.set_per_process_memory_fraction`` lowers it.

    Args:
        device: the device.
        cuda: ``torch.cuda``, or a stand-in where a test has no device.
    """

    def __init__(self, device: torch.device, *, cuda: Any = None) -> None:
        self._device, self._cuda = device, cuda or torch.cuda

    @property
    def name(self) -> str:
        """The device's product name and size."""
        properties = self._cuda.get_device_properties(self._device)
        return f"{properties.name} {properties.total_memory // 2**20} MiB"

    def read(self) -> Reading | None:
        """The allocator's statistics and the driver's free memory; neither waits for the device."""
        free, total = self._cuda.mem_get_info(self._device)
        limit = float(self._cuda.memory_reserved(self._device) + free)
        fraction = getattr(self._cuda, "get_per_process_memory_fraction", None)  # torch 2.6 and newer
        if fraction is not None:
            limit = min(limit, fraction(self._device) * total)
        return Reading(
            held_bytes=float(self._cuda.memory_allocated(self._device)),
            peak_bytes=float(self._cuda.max_memory_allocated(self._device)),
            limit_bytes=limit,
            total_bytes=float(total),
        )
