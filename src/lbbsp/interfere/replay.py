"""Replays recorded shares on an interference, beside whatever else the launcher does."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from lbbsp.errors import ConfigurationError
from lbbsp.interfere.base import Interference
from lbbsp.interfere.trace import ShareTrace

__all__ = ["Replay"]


class Replay:
    """Sets the shares when the trace says, on a daemon thread, until it is closed or the trace has ended.

    Where a change is refused (competing processes run out of levels without root) the shares stay as they were,
    and ``refused`` counts it.

    Args:
        interference: in force, with the trace's number of workers; stays open when the replay is closed.
        trace: what to replay, from its beginning.
        pace: seconds of the trace in a second.

    Raises:
        ConfigurationError: the pace is not positive, or the interference has other workers.
    """

    def __init__(self, interference: Interference, trace: ShareTrace, *, pace: float = 1.0) -> None:
        if not 0 < pace < float("inf"):
            raise ConfigurationError(f"pace={pace}: must be positive, in seconds of the trace a second")
        if len(interference.shares) != trace.workers:
            raise ConfigurationError(
                f"the trace has {trace.workers} workers, {len(interference.shares)} are to be held"
            )
        self._interference, self._trace, self._pace = interference, trace, pace
        self.refused = 0
        self.changes = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lbbsp-replay", daemon=True)
        self._set(trace.shares[0])
        self._thread.start()

    def _run(self) -> None:
        started_s = time.monotonic()
        for time_s, shares in zip(self._trace.times_s[1:], self._trace.shares[1:], strict=True):
            if self._stopped.wait(max(0.0, started_s + time_s / self._pace - time.monotonic())):
                return
            self._set(shares)

    def _set(self, shares: tuple[float, ...]) -> None:
        try:
            self._interference.set_shares(shares)
            self.changes += 1
        except ConfigurationError:
            self.refused += 1

    def close(self) -> None:
        """Stop changing shares; idempotent."""
        self._stopped.set()
        self._thread.join(timeout=15.0)

    def __enter__(self) -> Replay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
