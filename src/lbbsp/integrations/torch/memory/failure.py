"""When a rank runs out of memory: the same error on all ranks, and a cap for the next start.

The rank that fails raises its error in the user's code, out of the balancer's sight, while the others wait for its
gradients.  It is noticed where the error passes: in `LoadBalancer.guard`, in a forward hook that torch always calls, or
where Python reports the uncaught error.  From there the rank tells the others through the ranks' store, where each has
a small thread that listens, and that thread ends the wait for gradients.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import msgspec
import torch

from lbbsp.core.memory import PeakState, UpperFit
from lbbsp.errors import BatchTooLargeError, ConfigurationError
from lbbsp.integrations.torch.memory.caps_file import KeptCap, write_cap

__all__ = [
    "Breakable",
    "FailureDesk",
    "Herald",
    "InWork",
    "abort_on_device",
    "decoded",
    "is_out_of_memory",
    "outcome_of",
    "unwatch_uncaught",
    "watch_uncaught",
]

_SIGNS = (
    "can't allocate memory",
    "out of memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether ``error``, or what caused it, says that memory ran out (torch's CPU allocator has no type for it)."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, BatchTooLargeError):
            return False  # known already
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            return True
        if isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS):
            return True
        error = error.__cause__ or error.__context__
    return False


class Herald(Protocol):
    """Takes one text from a rank to all the others, past the collectives that they may be stuck in."""

    def announce(self, text: str) -> str:
        """Tell the others and wait, for a few seconds at most, until they have heard; the first text announced."""
        ...

    def announced(self) -> str | None:
        """What some rank has announced, if one has."""
        ...


@dataclass(frozen=True, slots=True)
class InWork:
    """What a rank was doing: samples at once (a batch or a piece of one), and in which iteration."""

    size: int
    iteration: int


class Breakable:
    """Waits that a thread can end: each is a future that is done when the true one is, or is broken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[torch.futures.Future[Any]] = set()
        self._broken = False

    def __call__(self, future: torch.futures.Future[Any]) -> torch.futures.Future[Any]:
        """A future with the value ``(value, error)`` of ``future``, or with ``(None, None)`` once broken."""
        promise: torch.futures.Future[Any] = torch.futures.Future()
        with self._lock:
            self._open.add(promise)
            broken = self._broken
        if broken:
            self._finish(promise, (None, None))
        else:
            future.add_done_callback(lambda done: self._finish(promise, outcome_of(done)))
        return promise

    def _finish(self, promise: torch.futures.Future[Any], outcome: tuple[Any, Any]) -> None:
        with self._lock:
            if promise not in self._open:
                return  # the other of the two ends came first
            self._open.discard(promise)
        promise.set_result(outcome)

    def break_all(self) -> None:
        """End all waits, and those to come."""
        with self._lock:
            self._broken, pending = True, list(self._open)
        for promise in pending:
            self._finish(promise, (None, None))


def outcome_of(done: torch.futures.Future[Any]) -> tuple[Any, RuntimeError | None]:
    """``(value, None)`` or ``(None, error)`` of a future that is done."""
    try:
        return done.value(), None
    except RuntimeError as error:
        return None, error


class FailureDesk:
    """Turns an out-of-memory error into `BatchTooLargeError`, here and on the other ranks.

    Args:
        herald: to the other ranks.
        rank: this rank.
        in_work: what this rank is doing; None outside an iteration.
        known: the fit, what it has seen, and the memory's limit (bytes).
        caps_file: where to keep the cap, or None.
        memory: the name of the memory.
        outlook: given this rank's new cap, a sentence if X no longer fits; else "".
    """

    def __init__(
        self,
        herald: Herald,
        *,
        rank: int,
        in_work: Callable[[], InWork | None],
        known: Callable[[], tuple[UpperFit, PeakState, float]],
        caps_file: Path | None,
        memory: Callable[[], str],
        outlook: Callable[[int], str],
    ) -> None:
        self._herald, self._rank, self._in_work, self._known = herald, rank, in_work, known
        self._caps_file, self._memory, self._outlook = caps_file, memory, outlook
        self._own: BatchTooLargeError | None = None

    @property
    def failed(self) -> bool:
        """Whether this rank has run out of memory."""
        return self._own is not None

    def translated(self, error: BaseException) -> BatchTooLargeError | None:
        """The error to raise in place of ``error``; None where it has nothing to do with memory.

        On the rank that ran out of memory this keeps its cap and tells the others; it waits for a few seconds at
        most.  Where another rank ran out of memory, it is whatever error that brought here.
        """
        if isinstance(error, BatchTooLargeError):
            return None
        if self._own is not None:
            return self._own
        if is_out_of_memory(error):
            return self._failed(error)
        return self.heard()

    def heard(self) -> BatchTooLargeError | None:
        """What another rank has announced."""
        text = self._herald.announced()
        return decoded(text) if text else None

    def _failed(self, error: BaseException) -> BatchTooLargeError:
        cause = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
        work = self._in_work()
        if work is None:
            message = f"rank {self._rank} ran out of memory outside the loop over its batches ({cause})"
            own = BatchTooLargeError(message, rank=self._rank)
        else:
            fit, state, limit_bytes = self._known()
            cap = fit.cap_after_failure(state, size=work.size, limit_bytes=limit_bytes)
            own = BatchTooLargeError(
                f"rank {self._rank} ran out of memory with {work.size} samples in iteration {work.iteration} "
                f"({cause}); its cap is now {cap} samples{self._keep(cap, work)}{self._outlook(cap)}",
                rank=self._rank,
                size=work.size,
                cap=cap,
            )
        first = self._herald.announce(_encoded(own))
        self._own = decoded(first)
        return self._own

    def _keep(self, cap: int, work: InWork) -> str:
        if cap < 1:
            return ", so not even one fits: make the model or the sample smaller"
        if self._caps_file is None:
            return f": start again from the last checkpoint with Limits(max_size={cap}) on it"
        kept = KeptCap(cap=cap, size=work.size, iteration=work.iteration, memory=self._memory())
        try:
            write_cap(self._caps_file, rank=self._rank, kept=kept)
        except (OSError, ConfigurationError) as error:
            return f", which could not be kept ({error}): give Limits(max_size={cap}) on it"
        return f", kept in {self._caps_file}: start again from the last checkpoint"


def _encoded(error: BatchTooLargeError) -> str:
    fields = {"message": str(error), "rank": error.rank, "size": error.size, "cap": error.cap}
    return msgspec.json.encode(fields).decode()


def decoded(text: str) -> BatchTooLargeError:
    """The error that a rank has announced."""
    fields: dict[str, Any] = msgspec.json.decode(text)
    return BatchTooLargeError(fields.pop("message"), **fields)


def abort_on_device(group: Any, device: torch.device) -> None:
    """End what ``group`` has in work on a CUDA device, where no wait of the host's can be broken.

    Kernels that wait for the failed rank return then, with gradients of no use, and the host's next wait for the
    device ends.
    """
    abort = getattr(group._get_backend(device), "abort", None) if device.type == "cuda" else None
    if abort is not None:  # torch 2.6 and newer; before, NCCL's own watchdog ends the wait
        abort()


_desks: weakref.WeakSet[FailureDesk] = weakref.WeakSet()
_previous: Callable[[type[BaseException], BaseException, TracebackType | None], Any] | None = None


def watch_uncaught(desk: FailureDesk) -> None:
    """Have ``desk`` see the error that ends the process, if one does."""
    global _previous
    if _previous is None:
        _previous, sys.excepthook = sys.excepthook, _report_uncaught
    _desks.add(desk)


def unwatch_uncaught(desk: FailureDesk) -> None:
    """The end of `watch_uncaught`; with the last desk goes the hook, if nobody has put another above it."""
    global _previous
    _desks.discard(desk)
    if not _desks and _previous is not None and sys.excepthook is _report_uncaught:
        sys.excepthook, _previous = _previous, None


def _report_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    previous = _previous or sys.__excepthook__
    for desk in list(_desks):
        translated = desk.translated(error)
        if translated is not None:
            translated.__cause__ = error
            previous(type(translated), translated, trace)
            return
    previous(kind, error, trace)
