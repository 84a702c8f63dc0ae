"""The seam between memory caps and whatever tells how much memory there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["MemoryProbe", "Reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A process's memory now.

    Args:
        held_bytes: held now.
        peak_bytes: the most ever held by it; never falls.
        limit_bytes: the most that it could hold now, given what others hold.
        total_bytes: the size of the memory.
    """

    held_bytes: float
    peak_bytes: float
    limit_bytes: float
    total_bytes: float


class MemoryProbe(Protocol):
    """Reads a memory, without changing anything that the user's own measurements could see."""

    @property
    def name(self) -> str:
        """Which memory it is: equal names stand for memories of equal size."""
        ...

    def read(self) -> Reading | None:
        """The memory now; None where it cannot be read."""
        ...
