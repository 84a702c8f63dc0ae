"""The errors lbbsp raises, as one tree.

::

    LbbspError
    ├── ConfigurationError          what was asked for cannot be done (also a ValueError)
    │   ├── InfeasibleBoundsError   no allocation satisfies the bounds
    │   └── ResumeError             a checkpoint belongs to another run
    ├── BatchTooLargeError          a rank ran out of memory (also a MemoryError; ``.rank``, ``.size``, ``.cap``)
    ├── AllocationMismatchError     ranks hold different allocations (I5)
    ├── ExchangeError               reports could not be exchanged
    │   └── RankLostError           ranks did not come within the time limit (``.ranks``)
    ├── TelemetryError              a recorded run cannot be read or written
    └── MissingDependencyError      an extra is not installed (also an ImportError)

Every message states the value, the bound it broke and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "AllocationMismatchError",
    "BatchTooLargeError",
    "ConfigurationError",
    "ExchangeError",
    "InfeasibleBoundsError",
    "LbbspError",
    "MissingDependencyError",
    "RankLostError",
    "ResumeError",
    "TelemetryError",
]


class LbbspError(Exception):
    """The root of every error of this library."""


class ConfigurationError(LbbspError, ValueError):
    """What was asked for cannot be done; raised on every rank before any work."""


class InfeasibleBoundsError(ConfigurationError):
    """No allocation of the global batch satisfies the per-worker bounds (I1)."""


class ResumeError(ConfigurationError):
    """A checkpoint belongs to another run: the message names the differing field."""


class BatchTooLargeError(LbbspError, MemoryError):
    """A rank ran out of memory; raised on all ranks.

    Args:
        message: which rank, with how many samples, and what its cap is now.
        rank: the rank that ran out of memory.
        size: the samples that it had in work at once; None outside an iteration.
        cap: the most samples that it may have from now on; None where that is not known.
    """

    def __init__(self, message: str, *, rank: int, size: int | None = None, cap: int | None = None) -> None:
        super().__init__(message)
        self.rank, self.size, self.cap = rank, size, cap

    def __reduce__(self) -> tuple[Any, ...]:
        """Keyword arguments are lost by the default pickling."""
        return _batch_too_large, (str(self), self.rank, self.size, self.cap)


def _batch_too_large(message: str, rank: int, size: int | None, cap: int | None) -> BatchTooLargeError:
    return BatchTooLargeError(message, rank=rank, size=size, cap=cap)


class AllocationMismatchError(LbbspError):
    """Ranks hold different allocations, which must never happen (I5)."""


class ExchangeError(LbbspError):
    """Reports could not be exchanged between the workers."""


class RankLostError(ExchangeError):
    """Some ranks did not come within the time limit.

    Args:
        message: what was waited for, how long, and who did not come.
        ranks: the ranks that did not come; empty where that could not be learned.
    """

    def __init__(self, message: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class TelemetryError(LbbspError):
    """A recorded run cannot be read or written."""


class MissingDependencyError(LbbspError, ImportError):
    """An optional dependency is not installed; the message says what to install."""
