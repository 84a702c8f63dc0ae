"""The global order of an epoch (I3): a permutation by (seed, epoch), or what the script's own sampler draws.

A sampler is drawn on every rank with torch's random numbers set by ``(seed, epoch)``, so that ranks and resumed runs
get the same order; they compare checksums of it, and differing ones are an error.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from lbbsp.core.order import EpochPlan, global_order
from lbbsp.core.types import IntArray
from lbbsp.errors import ConfigurationError
from lbbsp.exchange import Exchange
from lbbsp.integrations.torch.agreement import agree

__all__ = ["ListedPlan", "Orders", "Plan"]


class Plan(Protocol):
    """How an epoch's order falls into iterations; see `EpochPlan`."""

    @property
    def iterations(self) -> int:
        """Iterations in the epoch."""
        ...

    def total(self, iteration: int) -> int:
        """Samples in an iteration."""
        ...

    def positions(self, iteration: int) -> range:
        """Its positions in the order."""
        ...


@dataclass(frozen=True, slots=True)
class ListedPlan:
    """Iterations of sizes that a batch sampler sets: iteration k has positions ``offsets[k] .. offsets[k + 1]``."""

    offsets: tuple[int, ...]

    @property
    def iterations(self) -> int:
        """Iterations in the epoch."""
        return len(self.offsets) - 1

    def total(self, iteration: int) -> int:
        """Samples in an iteration."""
        return self.offsets[iteration + 1] - self.offsets[iteration]

    def positions(self, iteration: int) -> range:
        """Its positions in the order."""
        return range(self.offsets[iteration], self.offsets[iteration + 1])


@dataclass(frozen=True, slots=True)
class Orders:
    """Where the order comes from.

    Args:
        plan: how a permutation, or a sampler's order, falls into iterations.
        dataset_length: samples in the dataset.
        seed: of the permutation, and of the random numbers with which a sampler is drawn.
        shuffle: without a sampler, whether there is a permutation.
        sampler: yields indices, as many as ``plan.length``; None for none.
        batch_sampler: yields global batches, lists of at most X indices; None for none.
    """

    plan: EpochPlan
    dataset_length: int
    seed: int
    shuffle: bool
    sampler: Any = None
    batch_sampler: Any = None

    @property
    def own(self) -> Any:
        """The script's sampler, of either kind, or None."""
        return self.sampler if self.sampler is not None else self.batch_sampler

    @property
    def iterations(self) -> int:
        """Iterations in an epoch."""
        return len(self.batch_sampler) if self.batch_sampler is not None else self.plan.iterations

    def draw(self, epoch: int, exchange: Exchange) -> tuple[IntArray, Plan]:
        """The order of an epoch and its iterations; collective if the script has a sampler.

        Raises:
            ConfigurationError: on all ranks, if a sampler yields what is no index, too few, too many or too large
                batches, or not the same on all ranks.
        """
        if self.own is None:
            return global_order(self.plan.length, seed=self.seed, epoch=epoch, shuffle=self.shuffle), self.plan
        drawn: list[tuple[IntArray, Plan]] = []

        def check() -> tuple[dict[str, Any], Any]:
            with _random_numbers_of(self.seed, epoch):
                if hasattr(self.own, "set_epoch"):
                    self.own.set_epoch(epoch)
                listed = list(self.own)
            drawn.append(self._batches(listed) if self.batch_sampler is not None else self._indices(listed))
            return {"the sampler's order (checksum)": zlib.crc32(drawn[0][0].astype("<i8").tobytes())}, None

        agree(exchange, check)
        return drawn[0]

    def _indices(self, listed: list[Any]) -> tuple[IntArray, Plan]:
        if len(listed) != self.plan.length:
            raise ConfigurationError(f"the sampler yielded {len(listed)} indices; its len() says {self.plan.length}")
        return self._checked(listed), self.plan

    def _batches(self, listed: list[Any]) -> tuple[IntArray, Plan]:
        if len(listed) != len(self.batch_sampler):
            raise ConfigurationError(
                f"the batch sampler yielded {len(listed)} batches; its len() says {len(self.batch_sampler)}"
            )
        sizes = [len(batch) for batch in listed]
        most = self.plan.global_batch_size
        if not all(1 <= size <= most for size in sizes):
            wrong = next(size for size in sizes if not 1 <= size <= most)
            raise ConfigurationError(
                f"the batch sampler yielded a batch of {wrong}: it yields global batches of 1 to {most} samples, which "
                "are split over the ranks; give a larger global_batch_size or smaller batches"
            )
        offsets = tuple(np.concatenate([[0], np.cumsum(sizes)]).tolist())
        return self._checked([index for batch in listed for index in batch]), ListedPlan(offsets)

    def _checked(self, listed: Iterable[Any]) -> IntArray:
        order = np.array([int(index) for index in listed], dtype=np.int64)
        wrong = order[(order < 0) | (order >= self.dataset_length)]
        if wrong.size:
            raise ConfigurationError(f"the sampler yielded index {wrong[0]}; the dataset has {self.dataset_length}")
        return order


class _random_numbers_of:  # noqa: N801 - used as a verb
    """A block in which torch's, NumPy's and Python's random numbers are set by ``(seed, epoch)``, and then put back."""

    def __init__(self, seed: int, epoch: int) -> None:
        self._seed = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])

    def __enter__(self) -> None:
        self._kept = torch.get_rng_state(), np.random.get_state(), random.getstate()
        torch.default_generator.manual_seed(self._seed)
        np.random.seed(self._seed)
        random.seed(self._seed)

    def __exit__(self, *_: object) -> None:
        torch.set_rng_state(self._kept[0])
        np.random.set_state(self._kept[1])
        random.setstate(self._kept[2])
