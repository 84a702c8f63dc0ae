"""What a worker really gets."""

from __future__ import annotations

import time

from lbbsp.errors import ConfigurationError

__all__ = ["measure_share"]

_SETTLE_S = 0.05


def measure_share(*, duration_s: float = 0.5) -> float:
    """Spin, and return the CPU share that this process gets while it does.

    The share is ``process CPU seconds / wall seconds``, so other busy threads of the process count too.  A
    short spin goes first, which uses up what a quota may have left over.  Take ten quota periods or more:
    where a period is cut off, the share is wrong by up to ``period / duration_s``.

    Args:
        duration_s: how long to measure, wall seconds.

    Returns:
        The share, in cores.

    Raises:
        ConfigurationError: ``duration_s`` is not positive.

    Example:
        >>> 0 < measure_share(duration_s=0.1) < 2
        True
    """
    if not duration_s > 0:
        raise ConfigurationError(f"duration_s={duration_s}: must be above 0 seconds")
    _spin_until(time.perf_counter() + _SETTLE_S)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    _spin_until(wall_s + duration_s)
    return (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)


def _spin_until(end_s: float) -> None:
    while time.perf_counter() < end_s:
        pass
