"""All that a balancer does about its rank's memory."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lbbsp.core.memory import PeakState, UpperFit
from lbbsp.core.policy import Problem
from lbbsp.errors import InfeasibleBoundsError
from lbbsp.exchange import Exchange
from lbbsp.integrations.torch.exchange import TorchExchange
from lbbsp.integrations.torch.memory.caps_file import read_cap
from lbbsp.integrations.torch.memory.failure import (
    Breakable,
    FailureDesk,
    InWork,
    abort_on_device,
    decoded,
    is_out_of_memory,
    unwatch_uncaught,
    watch_uncaught,
)
from lbbsp.integrations.torch.memory.options import Memory
from lbbsp.integrations.torch.memory.watch import MemoryWatch, probe_for

__all__ = ["MemoryDesk", "explained"]


class MemoryDesk:
    """A rank's caps: given, kept from an earlier start, and learned; and what happens when memory runs out.

    Args:
        options: the user's.
        device: whose memory it is.
    """

    def __init__(self, options: Memory, device: torch.device) -> None:
        self._options, self._device = options, device
        self._probe = probe_for(device)
        learn = device.type == "cuda" if options.learn is None else options.learn
        self._watch = MemoryWatch(self._probe, options.fit()) if learn else None
        self._caps_file = Path(options.caps_file) if options.caps_file is not None else None
        self._watching = False
        self._cap: int | None = None
        self._learned = math.inf
        self._origin = ""
        self._failures: FailureDesk | None = None
        self.breakable = Breakable()

    # -- caps ----------------------------------------------------------------------------------------------------

    def read_cap(self, rank: int, max_size: int | None) -> int | None:
        """The cap that the user gave, or the one kept from an earlier start if that is less.

        Raises:
            ConfigurationError: the file of caps cannot be read.
        """
        self._cap, self._origin = max_size, "limits" if max_size is not None else ""
        if self._caps_file is None:
            return self._cap
        kept = read_cap(self._caps_file, rank=rank, memory=self._probe.name)
        if kept is not None and (max_size is None or kept.cap < max_size):
            self._cap = kept.cap
            self._origin = f"it ran out of memory with {kept.size}, says {self._caps_file}"
        return self._cap

    def cap_and_origin(self) -> tuple[int | None, str]:
        """The rank's cap before learning, and whence it comes."""
        return self._cap, self._origin

    @property
    def piece_cap(self) -> int | None:
        """The most samples to be in work at once, as known now; None if unknown."""
        known = math.inf if self._cap is None else self._cap
        least = min(known, self._learned)
        return None if least == math.inf else max(1, int(least))

    def begin(self, *, due: bool) -> None:
        """The batch is being asked for; whether the rank will report on it."""
        self._watching = due and self._watch is not None
        if self._watching and self._watch is not None:
            self._watch.begin()

    def end(self, size: int) -> float:
        """The last gradient is ready, of a batch with ``size`` samples at once; the cap to report."""
        if self._watching and self._watch is not None:
            self._watching = False
            self._learned = self._watch.end(size)
        # Pieces of a batch are kept within the cap by the script's splitting, not by the batch's size.
        return math.inf if self._options.micro_batches else self._learned

    # -- running out ---------------------------------------------------------------------------------------------

    def open(self, exchange: Exchange, group: Any, problem: Problem, *, in_work: Callable[[], InWork | None]) -> None:
        """All ranks are known: listen to them, and watch for this rank's own failure.

        Args:
            exchange: to them.
            group: in which they reduce gradients.
            problem: X and their bounds.
            in_work: what this rank is doing.
        """
        if not isinstance(exchange, TorchExchange):
            return

        def outlook(cap: int) -> str:
            hi = np.minimum(problem.bounds.hi, problem.global_batch_size)
            hi[exchange.rank] = min(int(hi[exchange.rank]), cap)
            most = int((hi // problem.bounds.granularity).sum()) * problem.bounds.granularity
            if self._options.micro_batches or most >= problem.global_batch_size:
                return ""
            return (
                f"; all ranks' caps then sum to {most} < {problem.global_batch_size}: take a global batch of "
                f"{most} or less, or allow micro-batches"
            )

        def heard() -> None:
            self.breakable.break_all()
            abort_on_device(group, self._device)

        self._failures = FailureDesk(
            exchange,
            rank=exchange.rank,
            in_work=in_work,
            known=self._known,
            caps_file=self._caps_file,
            memory=lambda: self._probe.name,
            outlook=outlook,
        )
        exchange.listen(heard, decoded)
        watch_uncaught(self._failures)

    def _known(self) -> tuple[UpperFit, PeakState, float]:
        if self._watch is None:
            return self._options.fit(), PeakState(), math.nan
        return self._watch.fit, self._watch.state, self._watch.limit_bytes

    def after_forward(self, _module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        """A forward pass has ended, by an error too (torch calls the hook from its handler)."""
        if output is None:
            self._notice(sys.exc_info()[1])

    def _notice(self, error: BaseException | None) -> None:
        """Tell the others, if ``error`` says that memory ran out."""
        if self._failures is not None and error is not None and is_out_of_memory(error):
            self._failures.translated(error)

    def raise_translated(self, error: BaseException) -> None:
        """Raise `BatchTooLargeError` in place of ``error`` if memory, here or on another rank, is its cause."""
        translated = self._failures.translated(error) if self._failures is not None else None
        if translated is not None:
            raise translated from error

    def close(self) -> None:
        """Stop watching for errors; one that is just passing is still seen."""
        if self._failures is None:
            return
        self._notice(sys.exc_info()[1])  # in a finally clause
        if not self._failures.failed:
            unwatch_uncaught(self._failures)


def explained(error: InfeasibleBoundsError, caps: Sequence[tuple[int | None, str]]) -> InfeasibleBoundsError:
    """``error`` with each rank's cap and whence it comes, where a rank has one."""
    known = [f"rank {rank}: {cap} ({origin})" for rank, (cap, origin) in enumerate(caps) if cap is not None]
    if not known:
        return error
    return InfeasibleBoundsError(
        f"{error}; caps of {', '.join(known)}; with Memory(micro_batches=True) a rank takes more than its cap in pieces"
    )
