"""Exchange over a gloo group of its own, asynchronous, so that reports travel beside the gradients.

When a wait fails, the ranks hold a roll-call through the group's key-value store.  Each rank has a small
thread that answers even while its main thread is stuck in a collective, so an error can tell the ranks that
are gone from those that are merely waiting too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import ProcessGroupGloo
from torch.distributed.distributed_c10d import _get_default_store

from lbbsp.core.types import FloatArray, Report, Reports
from lbbsp.errors import ExchangeError, RankLostError
from lbbsp.exchange.base import checked_time_limit

__all__ = ["TorchExchange"]

# How many exchanges this process has made for the same ranks: names the next one alike on all of them.
_made: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

_ROLL_CALL_POLL_S = 0.5
_ROLL_CALL_LIMIT_S = 3.0
_LISTEN_EVERY_S = 1.0


class TorchExchange:
    """One rank's end of an exchange over a ``torch.distributed`` gloo process group.

    Args:
        group: a gloo group for reports alone, of the ranks that train together; see `beside`.
        store: a store that these ranks share and nothing else writes to (a ``PrefixStore``).
        rank: in ``group``.
        workers: W, the size of ``group``.
        time_limit_s: the limit on each wait, seconds.
        names: how to name the ranks in errors, by default their numbers.
    """

    def __init__(
        self,
        group: ProcessGroupGloo,
        store: Store,
        *,
        rank: int,
        workers: int,
        time_limit_s: float = 300.0,
        names: Sequence[int] | None = None,
    ) -> None:
        self._group_or_none: ProcessGroupGloo | None = group
        self._store = store
        self.rank, self.workers = rank, workers
        self.time_limit_s = checked_time_limit(time_limit_s)
        self._names = list(names) if names is not None else list(range(workers))
        self._sent = torch.empty(Report.WIDTH, dtype=torch.float64)
        self._received = torch.empty((workers, Report.WIDTH), dtype=torch.float64)
        self._sent_row, self._received_rows = self._sent.numpy(), self._received.numpy()
        self._outputs = [list(self._received.unbind(0))]
        self._work: dist.Work | None = None
        self._progress = -1
        self._closed = threading.Event()
        self._on_announcement: Callable[[], None] = lambda: None
        self._as_error: Callable[[str], BaseException] = ExchangeError
        self._steward = threading.Thread(target=self._answer_roll_calls, name="lbbsp-roll-call", daemon=True)
        self._steward.start()

    @classmethod
    def beside(cls, group: dist.ProcessGroup, *, time_limit_s: float = 300.0) -> TorchExchange:
        """An exchange between the ranks of ``group``; collective.

        Its gloo group is made directly: ``torch.distributed.new_group`` names a group of some of the ranks by
        how many groups each rank knows, which differs between ranks that were in different ones, and then hangs.

        Raises:
            RankLostError: a rank of ``group`` did not come within ``time_limit_s``.
        """
        limit_s = checked_time_limit(time_limit_s)
        names = dist.get_process_group_ranks(group)
        key = "-".join(map(str, names))
        # torchrun may hand the same store to each start of a job, with what earlier starts left in it.
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"lbbsp/{start}/{key}/{next(_made[key])}", _get_default_store())
        rank, workers = dist.get_rank(group), len(names)
        try:
            store.set(f"hello/{rank}", "1")
            own = ProcessGroupGloo(PrefixStore("gloo", store), rank, workers, timeout=timedelta(seconds=limit_s))
        except RuntimeError as error:
            with contextlib.suppress(RuntimeError):
                missing = [name for i, name in enumerate(names) if not store.check([f"hello/{i}"])]
                raise RankLostError(
                    f"rank {names[rank]} waited {limit_s:g} s for the other ranks to make a LoadBalancer: "
                    f"rank(s) {missing or 'unknown'} did not come",
                    missing,
                ) from error
            raise RankLostError(f"the ranks' common store cannot be reached: {error}") from error
        return cls(own, store, rank=rank, workers=workers, time_limit_s=limit_s, names=names)

    def post(self, report: Report) -> None:
        """Start the all-gather of the reports; returns at once."""
        if self._work is not None:
            raise ExchangeError("a report is on its way already: collect it first")
        self._sent_row[:] = report.to_row()
        self._progress = report.iteration
        self._work = self._group.allgather(self._outputs, [self._sent])

    def collect(self) -> Reports:
        """Wait for the all-gather."""
        if self._work is None:
            raise ExchangeError("no report is on its way: post one first")
        work, self._work = self._work, None
        self._wait(work, f"the reports of iteration {self._progress}")
        return Reports.from_rows(self._received_rows)

    def gather(self, row: Sequence[float]) -> FloatArray:
        """Everyone's rows."""
        return self._gather(torch.tensor(list(row), dtype=torch.float64), "a gather of numbers").numpy()

    def start_gather(self, row: Sequence[float]) -> Callable[[], FloatArray]:
        """Start gathering everyone's rows, without a wait; call the answer for them."""
        sent = torch.tensor(list(row), dtype=torch.float64)
        received = torch.empty((self.workers, *sent.shape), dtype=sent.dtype)
        work = self._group.allgather([list(received.unbind(0))], [sent])

        def rows() -> FloatArray:
            self._wait(work, "a gather of weights")
            return received.numpy()

        return rows

    def gather_bytes(self, payload: bytes) -> list[bytes]:
        """Everyone's byte strings: their lengths first, then the padded strings."""
        lengths = [int(n) for n in self.gather([float(len(payload))])[:, 0]]
        padded = torch.zeros(max(1, *lengths), dtype=torch.uint8)
        padded[: len(payload)] = torch.tensor(list(payload), dtype=torch.uint8)
        rows = self._gather(padded, "a gather of settings").numpy()
        return [rows[rank, :length].tobytes() for rank, length in enumerate(lengths)]

    def _gather(self, sent: torch.Tensor, what: str) -> torch.Tensor:
        received = torch.empty((self.workers, *sent.shape), dtype=sent.dtype)
        self._wait(self._group.allgather([list(received.unbind(0))], [sent]), what)
        return received

    def _wait(self, work: dist.Work, what: str) -> None:
        deadline_s = time.monotonic() + self.time_limit_s
        while True:
            left_s = max(0.001, deadline_s - time.monotonic())
            try:
                work.wait(timedelta(seconds=min(_LISTEN_EVERY_S, left_s)))
            except RuntimeError as error:
                # A wait is cut into slices, between which this rank can hear that another has failed.
                if left_s <= _LISTEN_EVERY_S or work.is_completed() or self.announced() is not None:
                    raise self.lost(what, error) from error
            else:
                return

    def lost(self, what: str, error: BaseException, *, limit: str = "") -> BaseException:
        """Find out who is missing, or what was announced; the error to raise.  Takes a few seconds at most."""
        announced = self.announced()
        if announced is not None:
            return self._as_error(announced)
        absent, late = self._roll_call()
        parts = []
        if absent:
            parts.append(f"rank(s) {absent} do not answer (ended, killed, stopped or cut off)")
        if late:
            parts.append(f"rank(s) {late} are alive but have not come as far as iteration {self._progress}")
        return RankLostError(
            f"rank {self._names[self.rank]} waited for {what}, {limit or f'at most {self.time_limit_s:g} s'}: "
            f"{'; '.join(parts) or 'all ranks answer, so the connection between them failed'}. "
            f"torch says: {str(error).splitlines()[0][:300]}",
            absent or late,
        )

    def _roll_call(self) -> tuple[list[int], list[int]]:
        """Ranks that do not answer, and ranks that answer but lag behind this one."""
        answers: dict[int, int] = {}
        deadline = time.monotonic() + _ROLL_CALL_LIMIT_S
        try:
            self._store.set("roll-call", "1")
            while len(answers) < self.workers and time.monotonic() < deadline:
                for rank in range(self.workers):
                    if rank not in answers and self._store.check([f"here/{rank}"]):
                        answers[rank] = int(self._store.get(f"here/{rank}"))
                time.sleep(_ROLL_CALL_POLL_S / 2)
        except RuntimeError:
            return [self._names[0]], []  # the store is gone, and it is the first rank that hosts it
        absent = [self._names[rank] for rank in range(self.workers) if rank not in answers]
        late = [self._names[rank] for rank, progress in answers.items() if progress < self._progress]
        return absent, late

    def _answer_roll_calls(self) -> None:
        answered = False
        with contextlib.suppress(RuntimeError):  # the store is gone: nobody is left to answer
            while not self._closed.wait(_ROLL_CALL_POLL_S):
                if not answered:
                    if not self._store.check(["roll-call"]):
                        continue
                    self._store.set(f"here/{self.rank}", str(self._progress))
                    answered = True
                if self._store.check(["announcement"]):
                    self._on_announcement()
                    self._store.set(f"heard/{self.rank}", "1")
                    return

    def listen(self, on_announcement: Callable[[], None], as_error: Callable[[str], BaseException]) -> None:
        """Be told of announcements.

        Args:
            on_announcement: called in a thread once a rank (this one too) has announced something.
            as_error: makes the error of an announced text, which then ends every wait for the others.
        """
        self._on_announcement, self._as_error = on_announcement, as_error

    def announce(self, text: str) -> str:
        """Tell all ranks; wait a few seconds at most until they have heard.  The first text announced by any."""
        with contextlib.suppress(RuntimeError):  # the store is gone, and all ranks with it
            first = self._store.compare_set("announcement", "", text).decode()
            self._store.set("roll-call", "1")  # which makes them look
            deadline_s = time.monotonic() + min(_ROLL_CALL_LIMIT_S, self.time_limit_s)
            waiting = {f"heard/{rank}" for rank in range(self.workers) if rank != self.rank}
            while waiting and time.monotonic() < deadline_s:
                time.sleep(_ROLL_CALL_POLL_S / 10)
                waiting = {key for key in waiting if not self._store.check([key])}
            return first
        return text

    def announced(self) -> str | None:
        """What a rank has announced; None if none has."""
        with contextlib.suppress(RuntimeError):
            if self._store.check(["announcement"]):
                return self._store.get("announcement").decode()
        return None

    def close(self) -> None:
        """End the roll-call thread and release the group; idempotent."""
        self._closed.set()
        if self._steward is not threading.current_thread():
            self._steward.join(timeout=5.0)
        self._work = None
        self._group_or_none = None

    @property
    def _group(self) -> Any:  # torch declares no allgather on ProcessGroupGloo
        if self._group_or_none is None:
            raise ExchangeError("the exchange is closed")
        return self._group_or_none


def as_float64(value: float | torch.Tensor) -> np.ndarray:
    """A metric as a float64 vector on the host."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device="cpu", dtype=torch.float64).reshape(-1).numpy()
    return np.array([value], dtype=np.float64)
