"""The balanced data loader: each rank's share of the global order, batch by batch, through torch's DataLoader.

A batch's size is known at the boundary before it (L = 1) or one iteration earlier (L = 2, with loader workers).
To keep L at 2 whatever ``num_workers`` is, a batch is cut into ``num_workers * prefetch_factor`` chunks, and
torch's DataLoader, which always has that many index lists on their way, loads chunks.  Receiving the chunks of
iteration k makes it ask for those of k + 1, whose sizes the boundary before k has decided: it never waits for a
decision and never guesses one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from lbbsp.core.allocate import short_split
from lbbsp.core.order import EpochPlan, worker_slice
from lbbsp.core.types import FloatArray, IntArray
from lbbsp.errors import ConfigurationError, ResumeError
from lbbsp.exchange import Exchange
from lbbsp.integrations.torch.loop import Batch, Loop
from lbbsp.integrations.torch.orders import Orders, Plan

__all__ = ["BalancedLoader", "LoaderSpec"]

_OURS = {
    "batch_size": "the allocation sets each rank's batch; give LoadBalancer(global_batch_size=...)",
}
_FOR_WORKERS = (
    "prefetch_factor",
    "persistent_workers",
    "multiprocessing_context",
    "worker_init_fn",
    "timeout",
)
_PASSED_ON = {*_FOR_WORKERS, "collate_fn", "pin_memory", "generator", "num_workers", "pin_memory_device"}


@dataclass(frozen=True, slots=True)
class LoaderSpec:
    """What must agree on all ranks, and what goes to torch's DataLoader."""

    orders: Orders
    weight: Callable[[Any], float | torch.Tensor] | None
    evaluate: bool
    options: dict[str, Any]

    @classmethod
    def check(
        cls,
        dataset: Any,
        global_batch_size: int,
        *,
        shuffle: bool | None,
        seed: int,
        drop_last: bool,
        weight: Callable[[Any], float | torch.Tensor] | None,
        evaluate: bool,
        options: dict[str, Any],
    ) -> LoaderSpec:
        """Validate; ConfigurationError with the value, the bound and the remedy."""
        for name, why in _OURS.items():
            if options.get(name) is not None:
                raise ConfigurationError(f"data_loader({name}=...): {why}")
        options = dict(options)
        sampler, batch_sampler = options.pop("sampler", None), options.pop("batch_sampler", None)
        _check_samplers(sampler, batch_sampler, shuffle=shuffle, drop_last=drop_last)
        unknown = sorted(set(options) - _PASSED_ON - set(_OURS))
        if unknown:
            raise ConfigurationError(f"data_loader() has no option {', '.join(unknown)}")
        if isinstance(dataset, IterableDataset) or not (
            hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        ):
            raise ConfigurationError(
                f"data_loader({type(dataset).__name__}): needs a map-style dataset, with __len__ and __getitem__"
            )
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ConfigurationError(f"seed={seed!r}: must be an integer of 0 or more")
        workers = options.get("num_workers", 0)
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
            raise ConfigurationError(f"num_workers={workers!r}: must be an integer of 0 or more")
        prefetch = options.get("prefetch_factor")
        if prefetch is not None and (isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1):
            raise ConfigurationError(f"prefetch_factor={prefetch!r}: must be an integer of 1 or more")
        idle = [name for name in _FOR_WORKERS if options.get(name)] if workers == 0 else []
        if idle:
            raise ConfigurationError(f"{', '.join(idle)}: no effect with num_workers=0; give num_workers >= 1")
        if evaluate and (drop_last or weight is not None):
            raise ConfigurationError(
                "evaluate=True uses every sample once, by samples: drop_last and weight go with training"
            )
        length = len(dataset) if sampler is None else len(sampler)
        if evaluate:
            global_batch_size = max(1, min(global_batch_size, length))
        if batch_sampler is not None:
            length = max(length, global_batch_size)  # its batches make the plan
        plan = EpochPlan(length, global_batch_size, drop_last)
        orders = Orders(plan, len(dataset), seed, shuffle is not False, sampler, batch_sampler)
        return cls(orders, weight, evaluate, options)

    @property
    def plan(self) -> EpochPlan:
        """How the order falls into iterations, but for a batch sampler's."""
        return self.orders.plan

    @property
    def num_workers(self) -> int:
        """Loader worker processes on this rank."""
        return int(self.options.get("num_workers", 0))

    @property
    def lag(self) -> int:
        """L that this loader needs: 1, or 2 with loader workers."""
        return 2 if self.num_workers and not self.evaluate else 1

    @property
    def chunks(self) -> int:
        """Chunks that a batch is cut into: as many as torch's DataLoader keeps on their way."""
        return self.num_workers * int(self.options.get("prefetch_factor") or 2) if self.num_workers else 1


def _check_samplers(sampler: Any, batch_sampler: Any, *, shuffle: bool | None, drop_last: bool) -> None:
    if sampler is not None and batch_sampler is not None:
        raise ConfigurationError("sampler and batch_sampler: give one of them")
    for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if given is None:
            continue
        if not (hasattr(given, "__iter__") and hasattr(given, "__len__")):
            raise ConfigurationError(f"{name}={given!r}: needs __iter__ and __len__, which is the same on all ranks")
        if shuffle is not None:
            raise ConfigurationError(f"shuffle={shuffle} has no effect with {name}, which sets the order")
        if drop_last and name == "batch_sampler":
            raise ConfigurationError("drop_last=True has no effect with batch_sampler, which sets the batches")


class BalancedLoader:
    """Iterates over this rank's share of an epoch; make it with `LoadBalancer.data_loader`.

    Every rank does the same number of iterations (I2), and the ranks' batches of iteration k together are the
    positions ``kX .. (k+1)X`` of the global order, each exactly once (I3).  A rank without a sample in some
    iteration gets one of the iteration's samples with weight 0, so that it takes part in the reduction.

    ``collate_fn`` sees whole batches, never chunks.  Without one, torch's ``default_collate`` runs on chunks in
    the loader workers and the chunks are concatenated, which gives the same batch.
    """

    def __init__(self, loop: Loop, exchange: Exchange, dataset: Dataset[Any], spec: LoaderSpec) -> None:
        self._loop, self._exchange, self.dataset, self._spec = loop, exchange, dataset, spec
        self.epoch = 0
        self._position = 0  # iterations of this epoch that were handed out
        self._resume = False
        self._first_step = 0
        self._order: IntArray | None = None
        self._plan: Plan = spec.plan
        options = dict(spec.options)
        self._collate: Callable[[list[Any]], Any] = options.pop("collate_fn", None) or default_collate
        self._pin = bool(options.pop("pin_memory", False))
        options.pop("pin_memory_device", None)
        for name in _OURS:
            options.pop(name, None)
        if spec.num_workers:
            options["prefetch_factor"] = spec.chunks // spec.num_workers
        if options.get("generator") is None:
            # Worker seeds differ between ranks, so that ranks do not repeat one another's augmentations.
            seed = np.random.SeedSequence([spec.orders.seed, loop.rank]).generate_state(1, np.uint64)[0]
            options["generator"] = torch.Generator().manual_seed(int(seed) >> 1)
        collate = _ChunkCollate(raw=self._collate is not default_collate) if spec.num_workers else self._collate
        self._torch_loader: DataLoader[Any] | None = DataLoader(
            _accepting_empty(dataset) if spec.num_workers else dataset,
            batch_sampler=_Chunks(self._index_lists),
            collate_fn=collate,
            **options,
        )

    def __len__(self) -> int:
        """Iterations in an epoch, on every rank."""
        return self._spec.orders.iterations

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, which with the seed sets the order; a resumed epoch keeps its position."""
        if epoch < 0:
            raise ConfigurationError(f"epoch={epoch}: must be 0 or more")
        if self._resume and epoch != self.epoch:
            raise ResumeError(
                f"set_epoch({epoch}) after a checkpoint of epoch {self.epoch} would not go on from there: loop over "
                "range(loader.epoch, epochs)"
            )
        if epoch != self.epoch:
            self.epoch, self._position = epoch, 0

    def __iter__(self) -> Iterator[Any]:
        """This rank's batches from the start of the epoch, or from where a loaded state says."""
        if not self._resume:
            self._position = 0
        self._resume = False
        spec, loop, torch_loader = self._spec, self._loop, self._torch_loader
        if torch_loader is None:
            raise ConfigurationError("the balancer is closed: make a new one")
        self._order, self._plan = spec.orders.draw(self.epoch, self._exchange)
        if spec.evaluate:
            yield from self._evaluate(torch_loader)
            return
        loop.enter(self)
        try:
            first = self._position
            self._first_step = loop.next_step
            chunks: Iterator[Any] | None = None
            for k in range(first, self._plan.iterations):
                loop.boundary()
                loop.ask()
                if chunks is None:
                    chunks = iter(torch_loader)
                batch = self._assemble(chunks)
                self._position = k + 1
                sizes, total = self._sizes(k, first)
                size = int(sizes[loop.rank])
                loop.hand_out(epoch=self.epoch, size=size, total=total, weighs=self._weighs(batch, size))
                yield batch
            loop.boundary()
        finally:
            loop.leave(self)
        self.epoch, self._position = self.epoch + 1, 0

    def _evaluate(self, torch_loader: DataLoader[Any]) -> Iterator[Any]:
        """The batches of an evaluation, with the sizes now in force."""
        loop = self._loop
        with loop.aside():
            self._first_step = loop.next_step
            chunks = iter(torch_loader)
            for k in range(self._plan.iterations):
                batch = self._assemble(chunks)
                sizes, total = self._sizes(k, 0)
                loop.batch = Batch(loop.next_step, int(sizes[loop.rank]), max(1, int(sizes[loop.rank])), total)
                yield batch

    def _weighs(self, batch: Any, size: int) -> Callable[[], FloatArray] | None:
        """Let all ranks know what this rank's batch weighs, where the script says how to weigh it."""
        if self._spec.weight is None:
            return None
        return self._loop.start_gather([float(self._spec.weight(batch)) if size else 0.0])

    def _sizes(self, k: int, first: int) -> tuple[IntArray, int]:
        """All ranks' sizes in iteration k of this epoch, and their sum."""
        runtime = self._loop.runtime
        sizes = runtime.sizes(self._first_step if self._spec.evaluate else self._first_step + k - first)
        total = self._plan.total(k)
        return short_split(sizes, total, runtime.problem.bounds), total

    def _index_lists(self) -> Iterator[list[int]]:
        """The chunks of this rank's batches, as dataset indices, in order."""
        first, order = self._position, self._order
        assert order is not None
        for k in range(first, self._plan.iterations):
            sizes, _ = self._sizes(k, first)
            mine = worker_slice(self._plan.positions(k), sizes, self._loop.rank)
            positions = mine or self._plan.positions(k)[:1]
            indices = order[positions.start : positions.stop].tolist()
            n = self._spec.chunks
            for j in range(n):
                yield indices[len(indices) * j // n : len(indices) * (j + 1) // n]

    def _assemble(self, chunks: Iterator[Any]) -> Any:
        if not self._spec.num_workers:
            batch = next(chunks)
        else:
            parts = [part for part in (next(chunks) for _ in range(self._spec.chunks)) if part is not None]
            if self._collate is default_collate:
                batch = _concatenate(parts)
            else:
                batch = self._collate([sample for part in parts for sample in part])
        return _pinned(batch) if self._pin else batch

    def close(self) -> None:
        """End persistent loader workers; the balancer does it when it is closed."""
        self._torch_loader = None

    def state_dict(self) -> dict[str, Any]:
        """Where in which epoch of which order this loader is."""
        plan = self._spec.plan
        return {
            "length": plan.length,
            "seed": self._spec.orders.seed,
            "shuffle": self._spec.orders.shuffle,
            "sampler": type(self._spec.orders.own).__name__,
            "drop_last": plan.drop_last,
            "epoch": self.epoch,
            "position": self._position * plan.global_batch_size,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on at the saved position; the next iteration over the loader starts there.

        Raises:
            ResumeError: the dataset's length, the seed, shuffle or drop_last is another.
        """
        own = self.state_dict()
        for name in ("length", "seed", "shuffle", "drop_last", "sampler"):
            if saved[name] != own[name]:
                raise ResumeError(f"the checkpoint's loader has {name}={saved[name]}, this run's {own[name]}")
        self.epoch = int(saved["epoch"])
        self._position = int(saved["position"]) // self._spec.plan.global_batch_size
        self._resume = True


class _Chunks:
    """A batch sampler over a function that makes index lists."""

    def __init__(self, make: Callable[[], Iterator[list[int]]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[list[int]]:
        return self._make()


class _ChunkCollate:
    """Collates a chunk in a loader worker: by default_collate, or leaves the samples as they are."""

    def __init__(self, *, raw: bool) -> None:
        self.raw = raw

    def __call__(self, samples: list[Any]) -> Any:
        if not samples:
            return None
        return samples if self.raw else default_collate(samples)


class _AcceptsEmpty:
    """A dataset whose ``__getitems__`` is not asked for an empty list; everything else is the dataset's."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_dataset":
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index]

    def __getitems__(self, indices: list[int]) -> Any:
        return self._dataset.__getitems__(indices) if indices else []


def _accepting_empty(dataset: Any) -> Any:
    return _AcceptsEmpty(dataset) if getattr(dataset, "__getitems__", None) else dataset


def _concatenate(parts: Sequence[Any]) -> Any:
    """Batches that default_collate made of consecutive chunks, as the batch it makes of all samples."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, torch.Tensor):
        return torch.cat(list(parts))
    if isinstance(first, Mapping):
        merged = {key: _concatenate([part[key] for part in parts]) for key in first}
        return _like(first, merged)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(_concatenate(fields) for fields in zip(*parts, strict=True)))
    if isinstance(first, Sequence) and not isinstance(first, str | bytes):
        if all(isinstance(value, str | bytes) for part in parts for value in part):
            return _rebuilt(first, [value for part in parts for value in part])
        return _rebuilt(first, [_concatenate(fields) for fields in zip(*parts, strict=True)])
    raise ConfigurationError(f"cannot join batches of {type(first).__name__}: give a collate_fn of your own")


def _rebuilt(first: Sequence[Any], values: list[Any]) -> Any:
    return tuple(values) if isinstance(first, tuple) else values


def _like(first: Mapping[Any, Any], merged: dict[Any, Any]) -> Any:
    try:
        return type(first)(merged)  # type: ignore[call-arg]
    except TypeError:
        return merged


def _pinned(batch: Any) -> Any:
    """The batch in page-locked memory, as torch's DataLoader pins it."""
    if hasattr(batch, "pin_memory"):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        return _like(batch, {key: _pinned(value) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_pinned(value) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_pinned(value) for value in batch)
    return batch
