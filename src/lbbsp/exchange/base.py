"""The exchange contract: every worker's row to every worker, with a limit on each wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lbbsp.core.types import FloatArray, Report, Reports
from lbbsp.errors import ConfigurationError

__all__ = ["Exchange", "checked_time_limit", "raise_together"]


class Exchange(Protocol):
    """Moves rows of float64 and short byte strings between the workers of one run.

    Calls are collective: each worker makes them in the same order.  `post` does not wait; everything else
    waits for all workers, for `time_limit_s` at most, and then raises `RankLostError` naming who is missing.
    """

    rank: int
    workers: int
    time_limit_s: float

    def post(self, report: Report) -> None:
        """Start sending this worker's report; at most one may be on its way."""
        ...

    def collect(self) -> Reports:
        """The reports of all workers, for the report last posted."""
        ...

    def gather(self, row: Sequence[float]) -> FloatArray:
        """Everyone's rows of one length, as a matrix with worker i in row i."""
        ...

    def gather_bytes(self, payload: bytes) -> list[bytes]:
        """Everyone's byte strings, of any lengths."""
        ...

    def close(self) -> None:
        """Release threads and groups; idempotent."""
        ...


def checked_time_limit(time_limit_s: float) -> float:
    """``time_limit_s`` if it is a positive finite number of seconds, else ConfigurationError."""
    if not 0 < time_limit_s < float("inf"):
        raise ConfigurationError(f"time_limit_s={time_limit_s}: must be a positive, finite number of seconds")
    return float(time_limit_s)


def raise_together(exchange: Exchange, check: Callable[[], str | None]) -> list[str]:
    """Run ``check`` on every rank and raise on all of them if it fails on any (no rank is left waiting).

    Args:
        exchange: of all ranks.
        check: returns a string that the others get to see, or raises ConfigurationError.

    Returns:
        What ``check`` returned on each rank.

    Raises:
        ConfigurationError: on every rank; the rank's own error where it has one, else the others' texts.
    """
    own: ConfigurationError | None = None
    text = ""
    try:
        text = check() or ""
    except ConfigurationError as error:
        own = error
    answers = exchange.gather_bytes((b"!" + str(own).encode()) if own else (b"=" + text.encode()))
    failed = {rank: answer[1:].decode() for rank, answer in enumerate(answers) if answer[:1] == b"!"}
    if own is not None:
        raise own
    if failed:
        raise ConfigurationError("; ".join(f"rank {rank}: {message}" for rank, message in failed.items()))
    return [answer[1:].decode() for answer in answers]
