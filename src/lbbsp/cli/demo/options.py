"""The demo's options, checked before any work."""

from __future__ import annotations

import math
from pathlib import Path

from lbbsp.errors import ConfigurationError

__all__ = ["checked_out", "checked_shares", "checked_whole", "default_shares"]

MARKER = ".lbbsp-demo"
_FOUR = (0.8, 0.5, 0.3, 0.2)


def default_shares(workers: int, cores: int) -> list[float]:
    """.8, .5, .3, .2 for four workers; for others a spread of four to one that fits on the cores."""
    if workers == len(_FOUR) and sum(_FOUR) <= cores:
        return list(_FOUR)
    spread = [4.0 ** (-i / max(workers - 1, 1)) for i in range(workers)]
    scale = min(0.8, 0.9 * cores / sum(spread))
    return [round(scale * s, 3) for s in spread]


def checked_shares(text: str | None, workers: int, cores: int) -> list[float]:
    """The CPU shares asked for, one a worker.

    Raises:
        ConfigurationError: not numbers, not one a worker, or not in (0, 1].
    """
    if text is None:
        return default_shares(workers, cores)
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigurationError(f"--shares {text}: give numbers with commas between, e.g. .8,.5,.3,.2") from error
    if len(shares) != workers:
        raise ConfigurationError(f"--shares {text}: {len(shares)} shares for --workers {workers}; give one each")
    for share in shares:
        if not (math.isfinite(share) and 0.05 <= share <= 1):
            raise ConfigurationError(f"--shares {text}: {share:g} must lie between 0.05 and 1, a part of one core")
    return shares


def checked_whole(name: str, value: int, least: int, most: int | None = None) -> int:
    """``value`` within its bounds, else ConfigurationError."""
    if value < least or (most is not None and value > most):
        bound = f"at least {least}" + (f" and at most {most}" if most is not None else "")
        raise ConfigurationError(f"--{name} {value}: must be {bound}")
    return value


def checked_out(out: Path) -> Path:
    """An empty folder for the results: made, or emptied if an earlier demo made it.

    Raises:
        ConfigurationError: something else is there, or it cannot be made.
    """
    import shutil

    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARKER).exists())):
        raise ConfigurationError(f"--out {out}: something is there that no demo has made; name another folder")
    try:
        if out.exists():
            shutil.rmtree(out)
        out.mkdir(parents=True)
        (out / MARKER).write_text("made by lbbsp demo; the next demo may replace this folder\n")
    except OSError as error:
        raise ConfigurationError(f"--out {out}: cannot be made ({error.strerror}); name another folder") from error
    return out.resolve()
