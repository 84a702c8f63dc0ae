"""Iterable datasets: each rank's batches are the next x_i samples of its own stream, and all ranks end together."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from lbbsp.errors import ConfigurationError
from lbbsp.exchange import Exchange
from lbbsp.integrations.torch.loop import Loop

__all__ = ["StreamLoader"]

_CHUNKS_A_BATCH = 4


class StreamLoader:
    """Iterates over this rank's stream; make it with `LoadBalancer.data_loader` from an ``IterableDataset``.

    The stream of each rank is its own: the dataset sees to it that ranks (and loader workers) read different samples.
    Once a boundary all ranks tell how many samples they have got, so that they end in the same iteration:

    - while streams last, rank i's batch has x_i samples;
    - a rank whose stream ends takes what is left, then runs its last sample with weight 0; the loop ends when no rank
      has a sample left, so that every sample of every stream is used exactly once;
    - with ``drop_last`` the loop ends as soon as a rank cannot fill its batch.

    Args:
        loop: of this rank.
        exchange: to the other ranks.
        dataset: the stream; its ``set_epoch``, if it has one, is called.
        global_batch_size: X.
        drop_last: see above.
        weight: what a batch weighs, as for other loaders.
        options: of torch's DataLoader.
    """

    def __init__(
        self,
        loop: Loop,
        exchange: Exchange,
        dataset: IterableDataset[Any],
        *,
        global_batch_size: int,
        drop_last: bool,
        weight: Callable[[Any], float | torch.Tensor] | None,
        options: dict[str, Any],
    ) -> None:
        self._loop, self._exchange, self.dataset = loop, exchange, dataset
        self._drop_last, self._weight = drop_last, weight
        options = dict(options)
        self._collate = options.pop("collate_fn", None) or default_collate
        chunk = max(1, global_batch_size // (loop.workers * _CHUNKS_A_BATCH))
        self._torch_loader: DataLoader[Any] | None = DataLoader(
            dataset, batch_size=chunk, collate_fn=_as_they_are, **options
        )
        self.epoch = 0

    @staticmethod
    def check(options: dict[str, Any], *, shuffle: bool | None, evaluate: bool) -> None:
        """ConfigurationError for what has no effect on a stream."""
        idle = [name for name in ("sampler", "batch_sampler", "batch_size", "pin_memory") if options.get(name)]
        idle += ["shuffle"] if shuffle is not None else []
        idle += ["evaluate"] if evaluate else []
        if idle:
            raise ConfigurationError(f"{', '.join(idle)}: no effect on an iterable dataset, which is read as it comes")

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, which the dataset is told if it has a ``set_epoch``."""
        if epoch < 0:
            raise ConfigurationError(f"epoch={epoch}: must be 0 or more")
        self.epoch = epoch
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        """This rank's batches, until all ranks' streams end."""
        loop = self._loop
        if self._torch_loader is None:
            raise ConfigurationError("the balancer is closed: make a new one")
        loop.enter(self)
        try:
            samples = (sample for chunk in self._torch_loader for sample in chunk)
            spare: list[Any] = []  # for iterations in which this rank has no sample
            while True:
                loop.boundary()
                loop.ask()
                sizes = loop.runtime.sizes(loop.next_step)
                taken = list(itertools.islice(samples, int(sizes[loop.rank])))
                if not taken and not spare:
                    spare = list(itertools.islice(samples, 1))
                    samples = itertools.chain(spare, samples)  # type: ignore[assignment]
                counts = self._counts(len(taken), has_any=bool(taken or spare))
                total = sum(counts)
                if total == 0 or (self._drop_last and counts != sizes.tolist()):
                    break
                spare = taken[-1:] or spare
                batch = self._collate(taken or spare)
                size = len(taken)
                weighs = None
                if self._weight is not None:
                    weighs = loop.start_gather([float(self._weight(batch)) if size else 0.0])
                loop.hand_out(epoch=self.epoch, size=size, total=total, weighs=weighs)
                yield batch
            loop.step = None  # the iteration that was asked for is none
        finally:
            loop.leave(self)
        self.epoch += 1

    def _counts(self, own: int, *, has_any: bool) -> list[int]:
        """How many samples each rank has got; collective."""
        started_s = time.perf_counter()
        rows = self._exchange.gather([float(own), float(has_any)])
        self._loop.waited(time.perf_counter() - started_s)
        if rows[:, 0].any() and not rows[:, 1].all():
            empty = [rank for rank, row in enumerate(rows) if not row[1]]
            raise ConfigurationError(f"the stream of rank(s) {empty} has no sample at all: give each rank at least one")
        return [int(count) for count in rows[:, 0]]

    def close(self) -> None:
        """End persistent loader workers."""
        self._torch_loader = None

    def state_dict(self) -> dict[str, Any]:
        """The epoch; where in its stream a rank is, only the dataset can know."""
        return {"stream": True, "epoch": self.epoch}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take up the epoch; winding the stream on is the script's part."""
        self.epoch = int(saved["epoch"])


def _as_they_are(samples: list[Any]) -> list[Any]:
    return samples
