"""The global sample order, set by ``(seed, epoch)`` alone, and its slices (I3).

Iteration k of an epoch uses positions ``kX .. (k+1)X`` of the order; worker i takes the ``x_i`` positions
after those of the workers before it.  Neither W nor the allocation enters the order, so each sample of an
epoch is used exactly once whatever happens to the speeds, and a run resumed with another W goes on where it
stopped.

The permutation comes from NumPy's ``RandomState``, whose stream is frozen for good (NEP 19), so hosts with
different NumPy releases agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.core.types import IntArray
from lbbsp.errors import ConfigurationError

__all__ = ["EpochPlan", "global_order", "worker_slice"]


def global_order(length: int, *, seed: int, epoch: int, shuffle: bool = True) -> IntArray:
    """The order in which an epoch uses the samples, shape ``(length,)``, a permutation of ``0..length-1``.

    Args:
        length: N, samples in the dataset.
        seed: any non-negative integer; the run's seed.
        epoch: the epoch, from 0; each has an order of its own.
        shuffle: False keeps the dataset's order.
    """
    if not shuffle:
        return np.arange(length, dtype=np.int64)
    bits = np.random.MT19937(np.random.SeedSequence([seed, epoch]))
    order = np.arange(length, dtype=np.int64)
    np.random.RandomState(bits).shuffle(order)
    return order


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """How an epoch of ``length`` samples falls into iterations of ``global_batch_size``.

    Args:
        length: N, samples in the dataset.
        global_batch_size: X.
        drop_last: leave the last, short iteration out.

    Raises:
        ConfigurationError: the dataset is empty or shorter than the global batch.
    """

    length: int
    global_batch_size: int
    drop_last: bool = False

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ConfigurationError("the dataset is empty: it must hold at least one global batch of samples")
        if self.length < self.global_batch_size:
            raise ConfigurationError(
                f"the dataset has {self.length} samples, fewer than one global batch of "
                f"{self.global_batch_size}; take global_batch_size <= {self.length}"
            )

    @property
    def iterations(self) -> int:
        """Iterations in an epoch: the same on every rank (I2)."""
        full, short = divmod(self.length, self.global_batch_size)
        return full + (1 if short and not self.drop_last else 0)

    def total(self, iteration: int) -> int:
        """Samples in iteration ``iteration`` (from 0 in the epoch): X, or fewer in the last."""
        return min(self.global_batch_size, self.length - iteration * self.global_batch_size)

    def positions(self, iteration: int) -> range:
        """The positions of the global order that iteration ``iteration`` uses."""
        start = iteration * self.global_batch_size
        return range(start, start + self.total(iteration))


def worker_slice(positions: range, sizes: IntArray, worker: int) -> range:
    """The part of ``positions`` that ``worker`` takes when the workers take ``sizes`` in rank order.

    Example:
        >>> worker_slice(range(35, 70), np.array([24, 8, 3]), 1)
        range(59, 67)
    """
    before = int(sizes[:worker].sum())
    return positions[before : before + int(sizes[worker])]
