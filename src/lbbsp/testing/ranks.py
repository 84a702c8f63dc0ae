"""Ranks as threads: a distributed test in milliseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from lbbsp.errors import ExchangeError
from lbbsp.exchange import Exchange, LocalExchange

__all__ = ["run_ranks"]


def run_ranks(workers: int, function: Callable[[Exchange], Any], *, time_limit_s: float = 20.0) -> list[Any]:
    """Run ``function(exchange)`` in ``workers`` threads, each a rank of one exchange; their results in order.

    Args:
        workers: W.
        function: a rank's work; ``exchange.rank`` tells which.
        time_limit_s: limit on each wait of the exchange, and on the end of all ranks after the first's error.

    Raises:
        Exception: what the lowest failing rank raised, noted with the rank.
        ExchangeError: ranks are still running ``time_limit_s`` after they should have ended.
    """
    ends = LocalExchange.group(workers, time_limit_s=time_limit_s)
    results: list[Any] = [None] * workers
    failures: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = function(ends[rank])
        except BaseException as error:
            error.add_note(f"on rank {rank} of {workers}")
            failures[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank-{rank}", daemon=True) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10 * time_limit_s)
    stuck = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    if failures:
        raise failures[min(failures)]
    if stuck:
        raise ExchangeError(f"ranks {stuck} are still running after {10 * time_limit_s:g} s")
    return results
