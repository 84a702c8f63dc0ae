"""The contract of every way to make workers unequal, and the check of what is asked for."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from lbbsp.errors import ConfigurationError

__all__ = ["ENVIRONMENT", "Interference", "checked_shares", "usable_cores"]

ENVIRONMENT = "LBBSP_INTERFERENCE"
"""The environment variable through which a launcher tells its workers how to `join`."""


class Interference(Protocol):
    """Worker processes made unequal; held by the launcher, entered by each worker with `join`.

    A *share* is the CPU time that a busy worker gets per second of wall time: 0.5 is half a core.  `close`
    removes everything and may be called twice; leaving the ``with`` block or the interpreter calls it.  What
    a killed launcher leaves behind stops by itself or is removed by the next start.
    """

    @property
    def shares(self) -> tuple[float, ...]:
        """The share that each worker gets by design, in cores; may differ from what was asked for."""
        ...

    def describe(self) -> str:
        """What was done to the workers, in one sentence."""
        ...

    def environment(self) -> dict[str, str]:
        """What to add to the environment of every worker process; the same for all of them."""
        ...

    def set_shares(self, shares: Sequence[float]) -> None:
        """Change the shares now, whether workers have joined or not; for the launcher's process only.

        Args:
            shares: one for each worker, in cores.

        Raises:
            ConfigurationError: not one share a worker, a share out of bounds, or out of reach of this way.
        """
        ...

    def close(self) -> None:
        """Set the workers free and remove all that was made; a second call does nothing."""
        ...

    def __enter__(self) -> Interference: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...


def usable_cores() -> tuple[int, ...]:
    """The numbers of the cores that this process may run on, in order.

    Raises:
        ConfigurationError: this is not Linux.
    """
    if sys.platform != "linux":
        raise ConfigurationError(f"platform {sys.platform!r}: unequal workers need cgroups or CPU affinity; use Linux")
    return tuple(sorted(os.sched_getaffinity(0)))


def checked_shares(shares: Sequence[float], *, largest: float, workers: int | None = None) -> tuple[float, ...]:
    """The shares as floats, ``0 < share <= largest``.

    Args:
        shares: one for each worker, in cores.
        largest: the upper bound, in cores.
        workers: W where it is known already.

    Raises:
        ConfigurationError: no shares, not W of them, or one that is not a number within the bounds.
    """
    try:
        values = tuple(float(share) for share in shares)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"shares={shares!r}: give one number for each worker") from error
    if not values:
        raise ConfigurationError("shares=[]: give one share for each worker, for one worker at least")
    if workers is not None and len(values) != workers:
        raise ConfigurationError(f"{len(values)} shares for {workers} workers: give one for each worker")
    for worker, share in enumerate(values):
        if not (math.isfinite(share) and 0 < share <= largest):
            raise ConfigurationError(
                f"share of worker {worker} is {share}: it must be above 0 and at most {largest:g} cores"
            )
    return values
