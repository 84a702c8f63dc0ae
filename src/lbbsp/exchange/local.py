"""Exchange between threads of one process: for tests, simulators and single-process workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from lbbsp.core.types import FloatArray, Report, Reports
from lbbsp.errors import ConfigurationError, ExchangeError, RankLostError
from lbbsp.exchange.base import checked_time_limit

__all__ = ["LocalExchange"]


class _Board:
    """Rounds of items; a round is complete when every rank has put its item, gone when all have taken it."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.changed = threading.Condition()
        self.rounds: dict[tuple[str, int], dict[int, Any]] = {}
        self.taken: dict[tuple[str, int], int] = {}

    def put(self, key: tuple[str, int], rank: int, item: Any) -> None:
        with self.changed:
            self.rounds.setdefault(key, {})[rank] = item
            self.changed.notify_all()

    def take(self, key: tuple[str, int], time_limit_s: float) -> list[Any]:
        deadline = time.monotonic() + time_limit_s
        with self.changed:
            items = self.rounds.setdefault(key, {})
            while len(items) < self.workers:
                left = deadline - time.monotonic()
                if left <= 0:
                    missing = [rank for rank in range(self.workers) if rank not in items]
                    raise RankLostError(
                        f"waited {time_limit_s:g} s for {key[0]} {key[1]}: rank(s) {missing} did not come",
                        missing,
                    )
                self.changed.wait(left)
            self.taken[key] = self.taken.get(key, 0) + 1
            if self.taken[key] == self.workers:
                del self.rounds[key], self.taken[key]
            return [items[rank] for rank in range(self.workers)]


class LocalExchange:
    """One rank's end of an exchange between threads; make all ends with `group`.

    Example:
        >>> ends = LocalExchange.group(1)
        >>> ends[0].gather([1.0, 2.0]).tolist()
        [[1.0, 2.0]]
    """

    def __init__(self, board: _Board, rank: int, *, time_limit_s: float) -> None:
        self._board = board
        self.rank, self.workers = rank, board.workers
        self.time_limit_s = checked_time_limit(time_limit_s)
        self._gathered = 0
        self._posted = 0
        self._collected = 0

    @classmethod
    def group(cls, workers: int, *, time_limit_s: float = 30.0) -> list[LocalExchange]:
        """The ends of ``workers`` ranks, each for one thread."""
        if workers < 1:
            raise ConfigurationError(f"workers={workers}: must be 1 or more")
        board = _Board(workers)
        return [cls(board, rank, time_limit_s=time_limit_s) for rank in range(workers)]

    def post(self, report: Report) -> None:
        """Put the report on the board."""
        if self._posted != self._collected:
            raise ExchangeError("a report is on its way already: collect it first")
        self._board.put(("report", self._posted), self.rank, report.to_row())
        self._posted += 1

    def collect(self) -> Reports:
        """Wait for the reports of the round last posted to."""
        if self._posted == self._collected:
            raise ExchangeError("no report is on its way: post one first")
        rows = self._board.take(("report", self._collected), self.time_limit_s)
        self._collected += 1
        return Reports.from_rows(rows)

    def gather(self, row: Sequence[float]) -> FloatArray:
        """Everyone's rows."""
        return np.array(self._round(tuple(row)), dtype=np.float64)

    def gather_bytes(self, payload: bytes) -> list[bytes]:
        """Everyone's byte strings."""
        return self._round(payload)

    def _round(self, item: Any) -> list[Any]:
        key = ("gather", self._gathered)
        self._gathered += 1
        self._board.put(key, self.rank, item)
        return self._board.take(key, self.time_limit_s)

    def close(self) -> None:
        """Nothing to release."""
