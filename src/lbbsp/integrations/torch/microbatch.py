"""Micro-batches: several forward and backward passes an update on a rank, with exact weights and one reduction.

Where ``b_j`` samples of micro-batch j of rank i have the mean gradient ``g_ij``, the update is
``sum_i sum_j (b_j / X) g_ij``, which is the mean over the global batch: each gradient is weighted where it is made, all
but the last backward pass of a rank run without the reduction, and every rank reduces once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from lbbsp.core.allocate import short_split
from lbbsp.core.order import EpochPlan, global_order
from lbbsp.core.types import Bounds, IntArray
from lbbsp.errors import ConfigurationError, ResumeError
from lbbsp.integrations.torch.loop import Loop

__all__ = ["MicroBatchSampler", "MicroBatches", "pieces_of", "run_pieces", "sliced"]


def run_pieces(
    loop: Loop, ddps: Sequence[DistributedDataParallel], pieces: Iterator[Any], sizes: Sequence[tuple[int, int]]
) -> Iterator[Any]:
    """Hand out the pieces of the batch in work, each with its weight; the last one's gradients are reduced.

    Args:
        loop: of this rank.
        ddps: the models whose reductions wait for the last piece.
        pieces: the pieces.
        sizes: of each piece, the samples that count and the samples that are run.
    """
    batch = loop.batch
    if batch is None:
        raise ConfigurationError("micro-batches outside the loop over the data loader: no batch is in work")
    if batch.weighs is not None and len(sizes) > 1:
        raise ConfigurationError("micro-batches with weight=: a piece's part of the batch's weight is not known")
    syncs = [bool(ddp.require_backward_grad_sync) for ddp in ddps]
    try:
        for j, (batch.counting, batch.at_once) in enumerate(sizes):
            for ddp, sync in zip(ddps, syncs, strict=True):
                ddp.require_backward_grad_sync = sync and j == len(sizes) - 1
            yield next(pieces)
    finally:
        batch.counting = batch.at_once = None
        for ddp, sync in zip(ddps, syncs, strict=True):
            ddp.require_backward_grad_sync = sync


def pieces_of(size: int, cap: int | None) -> list[int]:
    """``size`` samples in the fewest pieces of at most ``cap``, as equal as can be.

    Example:
        >>> pieces_of(11, 4)
        [4, 4, 3]
    """
    count = 1 if cap is None else -(-size // cap)
    return [size * (j + 1) // count - size * j // count for j in range(count)][::-1]


def sliced(batch: Any, start: int, stop: int, size: int) -> Any:
    """Samples ``start`` to ``stop`` of a batch of ``size``: of tensors and lists in any nesting."""
    if isinstance(batch, torch.Tensor) and batch.ndim and len(batch) == size:
        return batch[start:stop]
    if isinstance(batch, Mapping):
        return {key: sliced(value, start, stop, size) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(sliced(value, start, stop, size) for value in batch))
    if isinstance(batch, list | tuple):
        if len(batch) == size and not any(isinstance(value, torch.Tensor | Mapping | list | tuple) for value in batch):
            return batch[start:stop]
        return type(batch)(sliced(value, start, stop, size) for value in batch)
    raise ConfigurationError(
        f"a batch with {type(batch).__name__} in it cannot be split into {size} samples: it takes tensors whose first "
        f"dimension is {size}, lists of {size}, and mappings, lists and tuples of them"
    )


@dataclass(slots=True)
class _Place:
    """Where in which epoch."""

    epoch: int = 0
    position: int = 0
    resume: bool = False


class MicroBatchSampler:
    """This rank's micro-batches as index lists: the ``batch_sampler`` of a ``DataLoader`` of your own.

    Make it with `LoadBalancer.micro_batch_sampler`, and iterate over the loader through `LoadBalancer.updates`.  Every
    list has ``micro_batch_size`` indices, but for the last of an epoch whose length is no multiple of it.
    """

    def __init__(self, loop: Loop, plan: EpochPlan, micro_batch_size: int, *, shuffle: bool, seed: int) -> None:
        self.loop, self.plan, self.micro_batch_size = loop, plan, micro_batch_size
        self.shuffle, self.seed = shuffle, seed
        self.place = _Place()
        self.first = self.first_step = 0  # the loop's first iteration in the epoch, and in the run

    def __iter__(self) -> Iterator[list[int]]:
        """From the place in the epoch on; sizes are looked up no earlier than they are decided."""
        if self.loop.active is not self:
            raise ConfigurationError("iterate over balancer.updates(loader), not over the loader itself")
        order = global_order(self.plan.length, seed=self.seed, epoch=self.place.epoch, shuffle=self.shuffle)
        for k in range(self.first, self.plan.iterations):
            positions = self.plan.positions(k)
            for start, stop in self.spans(k):
                yield order[positions[start] : positions[stop - 1] + 1].tolist()

    def counts(self, k: int) -> IntArray:
        """n_i, the micro-batches of every rank in iteration k."""
        bounds, m = self.loop.runtime.problem.bounds, self.micro_batch_size
        sizes = self.loop.runtime.sizes(self.first_step + k - self.first) // m
        many = -(-self.plan.total(k) // m)
        return short_split(sizes, many, Bounds(-(-bounds.lo // m), bounds.hi // m, bounds.granularity // m))

    def spans(self, k: int) -> list[tuple[int, int]]:
        """Where this rank's micro-batches lie within iteration k; the first one of all if it has none."""
        counts, m, total = self.counts(k), self.micro_batch_size, self.plan.total(k)
        before, own = int(counts[: self.loop.rank].sum()), int(counts[self.loop.rank])
        return [(j * m, min((j + 1) * m, total)) for j in range(before, before + own)] or [(0, min(m, total))]

    def samples(self, k: int) -> IntArray:
        """x_i, samples of every rank in iteration k."""
        ends = (self.counts(k).cumsum() * self.micro_batch_size).clip(max=self.plan.total(k))
        ends[1:] -= ends[:-1].copy()
        return ends


class MicroBatches:
    """Iterates over updates, each an iterator over this rank's micro-batches; make it with `LoadBalancer.updates`."""

    def __init__(
        self,
        loop: Loop,
        ddps: Sequence[DistributedDataParallel],
        loader: DataLoader[Any],
        sampler: MicroBatchSampler,
    ) -> None:
        self._loop, self._ddps, self._loader, self._sampler = loop, ddps, loader, sampler

    def __len__(self) -> int:
        """Updates in an epoch, on every rank."""
        return self._sampler.plan.iterations

    @property
    def epoch(self) -> int:
        """The epoch that the next loop begins or goes on with."""
        return self._sampler.place.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, which with the seed sets the order; a resumed epoch keeps its position."""
        if epoch < 0:
            raise ConfigurationError(f"epoch={epoch}: must be 0 or more")
        if epoch != self.epoch:
            self._sampler.place = _Place(epoch)

    def __iter__(self) -> Iterator[Iterator[Any]]:
        """The updates of the epoch; take all micro-batches of each, or the other ranks wait for this one."""
        loop, sampler, place = self._loop, self._sampler, self._sampler.place
        first = place.position if place.resume else 0
        place.position, place.resume = first, False
        loop.enter(sampler)
        try:
            sampler.first, sampler.first_step = first, loop.next_step
            batches: Iterator[Any] | None = None
            for k in range(first, sampler.plan.iterations):
                loop.boundary()
                loop.ask()
                if batches is None:
                    batches = iter(self._loader)
                place.position = k + 1
                spans, sizes = sampler.spans(k), sampler.samples(k)
                run = [stop - start for start, stop in spans]
                counting = run if sizes[loop.rank] else [0]
                size, total = int(sizes[loop.rank]), sampler.plan.total(k)
                loop.hand_out(epoch=place.epoch, size=size, total=total, weighs=None, processed=sum(run))
                yield run_pieces(loop, self._ddps, batches, list(zip(counting, run, strict=True)))
            loop.boundary()
        finally:
            loop.leave(sampler)
        sampler.place = _Place(place.epoch + 1)

    def close(self) -> None:
        """Nothing: the loader is the user's."""

    def state_dict(self) -> dict[str, Any]:
        """Where in which epoch of which order."""
        sampler, plan = self._sampler, self._sampler.plan
        return {
            "length": plan.length,
            "seed": sampler.seed,
            "shuffle": sampler.shuffle,
            "drop_last": plan.drop_last,
            "epoch": sampler.place.epoch,
            "position": sampler.place.position * plan.global_batch_size,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on at the saved position.

        Raises:
            ResumeError: the dataset's length, the seed, shuffle or drop_last is another.
        """
        own = self.state_dict()
        for name in ("length", "seed", "shuffle", "drop_last"):
            if saved[name] != own[name]:
                raise ResumeError(f"the checkpoint's loader has {name}={saved[name]}, this run's {own[name]}")
        position = int(saved["position"]) // self._sampler.plan.global_batch_size
        self._sampler.place = _Place(int(saved["epoch"]), position, resume=True)
