"""LoadBalancer: balanced PyTorch data-parallel training in three more lines than plain DDP."""

from __future__ import annotations

import atexit
import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset

import lbbsp
from lbbsp.core.order import EpochPlan
from lbbsp.core.policy import Policy, Problem, resolve_policy
from lbbsp.core.types import Bounds
from lbbsp.engine import Decision
from lbbsp.errors import ConfigurationError, ExchangeError, InfeasibleBoundsError
from lbbsp.integrations.torch import checkpoint
from lbbsp.integrations.torch.agreement import agree
from lbbsp.integrations.torch.exchange import TorchExchange, as_float64
from lbbsp.integrations.torch.hook import CommHook
from lbbsp.integrations.torch.limits import Limits, own_bounds
from lbbsp.integrations.torch.loader import BalancedLoader, LoaderSpec
from lbbsp.integrations.torch.loop import Loop
from lbbsp.integrations.torch.memory import MemoryDesk, explained
from lbbsp.integrations.torch.microbatch import MicroBatches, MicroBatchSampler, pieces_of, run_pieces, sliced
from lbbsp.integrations.torch.models import check_models, least_size
from lbbsp.integrations.torch.stream import StreamLoader
from lbbsp.integrations.torch.timing import stopwatch_for
from lbbsp.integrations.torch.weighting import WeightedDdp
from lbbsp.recorder import Recorder
from lbbsp.runtime import Runtime, Settings
from lbbsp.telemetry.sensors import Sensors

__all__ = ["LoadBalancer"]


class LoadBalancer:
    """Sizes each rank's batch to its speed and weights the gradients, so that the update stays BSP's.

    ::

        model = DDP(Net().to(device))
        balancer = LoadBalancer(model, global_batch_size=512)
        loader = balancer.data_loader(dataset, num_workers=4)

    Making one is collective: every rank of the model's process group does it, with the same arguments but for
    ``limits``.  What is wrong on one rank is raised on all of them before any work.

    Args:
        model: a ``DistributedDataParallel`` model, whose gradient reduction is then weighted by a
            communication hook; or several of them over the same ranks (a generator and a discriminator), all
            trained on the batches of one loader.  Anything else (a model whose gradients you reduce yourself, or
            None) leaves the reduction alone: multiply the loss by `weight` and call `report` after the backward pass.
        global_batch_size: X, samples in each update over all ranks; fixed, so the learning rate is untouched.
        policy: "auto", another name in `lbbsp.core.policy.resolve.POLICIES`, or an object.
        limits: this rank's sizes.
        comm_hook: ``(state, hook)``, a DDP communication hook that averages; ours weights before it.
        telemetry: a folder for the run's record (JSON lines); None for none.
        settings: the dead band, warm-up, time limit and observe-only.

    Raises:
        ConfigurationError: an argument is wrong on some rank, or ranks differ, or the model has a balancer.
        InfeasibleBoundsError: the limits of all ranks do not admit X.
        RankLostError: a rank did not come within the time limit.

    Source: Chen et al., SoCC 2020, section 4.
    """

    def __init__(
        self,
        model: torch.nn.Module | Sequence[torch.nn.Module] | None,
        *,
        global_batch_size: int,
        policy: str | Policy[Any] = "auto",
        limits: Limits | None = None,
        comm_hook: tuple[Any, CommHook] | None = None,
        telemetry: str | Path | None = None,
        settings: Settings | None = None,
    ) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise ConfigurationError(
                "torch.distributed is not initialised: call torch.distributed.init_process_group() first "
                "(and start the script with torchrun)"
            )
        models = _unwrapped(model)
        ddps = [each for each in models if isinstance(each, DistributedDataParallel)]
        group = ddps[0].process_group if ddps else dist.group.WORLD
        assert group is not None
        self._settings = settings or Settings()
        self._limits = limits or Limits()
        self._global_batch_size = global_batch_size
        device = next((p.device for each in models for p in each.parameters()), torch.device("cpu"))
        self._exchange = TorchExchange.beside(group, time_limit_s=self._settings.time_limit_s)
        self._closed = False
        self._loaders: list[BalancedLoader | MicroBatches | StreamLoader] = []
        self._evaluating: list[BalancedLoader] = []
        self._weighted = [WeightedDdp(ddp, group, self._exchange) for ddp in ddps]
        self._memory = MemoryDesk(self._limits.memory, device)
        try:
            self._policy, self._problem = self._agree(models, policy, comm_hook)
        except BaseException:
            self._exchange.close()
            raise
        self._recorder = Recorder.open(
            telemetry,
            rank=self.rank,
            problem=self._problem,
            policy=self._policy.name,
            settings=self._settings,
            machine={"torch": torch.__version__, "device": str(device)},
        )
        self._loop = Loop(
            rank=self.rank,
            workers=self.workers,
            stopwatch=stopwatch_for(device),
            recorder=self._recorder,
            sensors=Sensors(gpu=device.index if device.type == "cuda" else None),
            memory=self._memory,
            start_gather=self._exchange.start_gather,
            reports_itself=bool(ddps),
        )
        self._memory.open(self._exchange, group, self._problem, in_work=self._loop.in_work)
        for weighted in self._weighted:
            weighted.attach(self._loop)
        atexit.register(self.close)  # gloo's threads must end before the interpreter does

    # -- setting up -------------------------------------------------------------------------------------------

    def _agree(
        self, models: list[torch.nn.Module], policy: str | Policy[Any], comm_hook: tuple[Any, CommHook] | None
    ) -> tuple[Policy[Any], Problem]:
        """Validate on every rank, compare, and gather the bounds; errors are raised on every rank."""
        chosen: list[Policy[Any]] = []
        x, limits = self._global_batch_size, self._limits

        def check() -> tuple[dict[str, Any], Any]:
            if isinstance(x, bool) or not isinstance(x, int) or x < 1:
                raise ConfigurationError(f"global_batch_size={x!r}: must be an integer of 1 or more")
            chosen.append(resolve_policy(policy))
            cap = self._memory.read_cap(self.rank, limits.max_size)
            least = least_size(models, limits, x, rank=self.rank, workers=self.workers)
            bounds = own_bounds(limits, x, None if limits.memory.micro_batches else cap, least=least)
            check_models(models, comm_hook)
            for weighted in self._weighted:
                weighted.register(comm_hook)
            same = {
                "lbbsp": lbbsp.__version__,
                "global_batch_size": x,
                "policy": repr(chosen[0]),
                "granularity": limits.granularity,
                "settings": asdict(self._settings),
            }
            return same, (bounds, self._memory.cap_and_origin())

        bounds, caps = zip(*agree(self._exchange, check), strict=True)
        lo, hi = np.array(bounds).T
        try:
            return chosen[0], Problem(x, Bounds(lo, hi, limits.granularity))
        except InfeasibleBoundsError as error:
            raise explained(error, caps) from None

    def data_loader(
        self,
        dataset: Dataset[Any],
        *,
        shuffle: bool | None = None,
        seed: int = 0,
        drop_last: bool = False,
        weight: Callable[[Any], float | torch.Tensor] | None = None,
        evaluate: bool = False,
        **options: Any,
    ) -> Any:
        """A `BalancedLoader` of this rank's share of each global batch, or a `StreamLoader`; collective.

        Args:
            dataset: map-style (``__len__`` and ``__getitem__``), the same on every rank; or iterable, then each rank's
                own stream.
            shuffle: whether an epoch's order is a permutation set by ``(seed, epoch)``; None for yes, unless there is
                a ``sampler`` or ``batch_sampler``.
            seed: of the order and of the loader workers' random numbers; 0 or more.
            drop_last: leave out the short last batch instead of splitting it.
            weight: what this rank's batch weighs, where the loss is a mean over something else than samples (valid
                tokens, pixels): a function of the batch as it is handed out.  Gradients and `mean` are then weighted
                by it, over all ranks, instead of by samples.
            evaluate: the loader's iterations are no training: they report and change nothing, may come between two
                batches of another loader, and the dataset may be smaller than a global batch.
            **options: ``sampler`` (sets the global order) or ``batch_sampler`` (yields global batches of X samples at
                most, which are split over the ranks), the same on all ranks; ``num_workers``,
                ``prefetch_factor``, ``collate_fn``, ``pin_memory``,
                ``persistent_workers``, ``worker_init_fn``, ``timeout``, ``generator`` and
                ``multiprocessing_context`` of torch's DataLoader, with its meanings.

        Raises:
            ConfigurationError: the dataset is empty or shorter than a global batch, ranks differ, or an option
                is unknown, has no effect, or is the balancer's own (``batch_size``).
        """
        if isinstance(dataset, IterableDataset):
            return self._stream_loader(
                dataset, shuffle=shuffle, drop_last=drop_last, weight=weight, evaluate=evaluate, options=options
            )
        specs: list[LoaderSpec] = []

        def check() -> tuple[dict[str, Any], Any]:
            spec = LoaderSpec.check(
                dataset,
                self._global_batch_size,
                shuffle=shuffle,
                seed=seed,
                drop_last=drop_last,
                weight=weight,
                evaluate=evaluate,
                options=options,
            )
            if not evaluate:
                for weighted in self._weighted:
                    weighted.check_shortest(spec.plan.total(spec.plan.iterations - 1), self.workers)
            specs.append(spec)
            same = {"length": spec.plan.length, "seed": seed, "shuffle": shuffle, "drop_last": drop_last}
            return {**same, "evaluate": evaluate, "weight": weight is not None}, spec.lag

        self._prepare(max(agree(self._exchange, check)))
        loader = BalancedLoader(self._loop, self._exchange, dataset, specs[0])
        (self._evaluating if evaluate else self._loaders).append(loader)
        return loader

    def micro_batch_sampler(
        self,
        dataset: Sized,
        *,
        micro_batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> MicroBatchSampler:
        """A ``batch_sampler`` for a ``DataLoader`` of your own, to be iterated over by `updates`; collective.

        Rank i runs ``x_i / micro_batch_size`` micro-batches of one shape, so nothing is recompiled when sizes move.

        Args:
            dataset: anything with a length, the same on every rank.
            micro_batch_size: m, samples; the granularity of the limits must be a multiple of it.
            shuffle: whether an epoch's order is a permutation set by ``(seed, epoch)``.
            seed: of the order.
            drop_last: leave out the short last update, the only one with a short micro-batch.

        Raises:
            ConfigurationError: m does not divide the granularity, the dataset is shorter than a global batch, or
                ranks differ.
        """
        plans: list[EpochPlan] = []

        def check() -> tuple[dict[str, Any], Any]:
            g, m = self._limits.granularity, micro_batch_size
            if isinstance(m, bool) or not isinstance(m, int) or m < 1 or g % m:
                raise ConfigurationError(
                    f"micro_batch_size={m!r}: must be an integer that divides the granularity {g}; "
                    f"give LoadBalancer(limits=Limits(granularity={m}))"
                )
            if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
                raise ConfigurationError(f"seed={seed!r}: must be an integer of 0 or more")
            self._check_pieces()
            plans.append(EpochPlan(len(dataset), self._global_batch_size, drop_last))
            same = {"length": len(dataset), "seed": seed, "shuffle": shuffle, "drop_last": drop_last}
            return {**same, "micro_batch_size": m}, None

        agree(self._exchange, check)
        return MicroBatchSampler(self._loop, plans[0], micro_batch_size, shuffle=shuffle, seed=seed)

    def updates(self, loader: DataLoader[Any]) -> MicroBatches:
        """Iterate over updates instead of batches, each an iterator over this rank's micro-batches; collective.

        A loader with worker processes asks for ``num_workers * prefetch_factor`` micro-batches ahead, so what it
        asks for must have been decided that much earlier: the lag L is 1 plus the updates that these take a rank
        with its least number of micro-batches.

        Args:
            loader: a ``DataLoader`` with ``batch_sampler=balancer.micro_batch_sampler(...)``.

        Raises:
            ConfigurationError: the loader has another batch sampler.
        """

        def check() -> tuple[dict[str, Any], Any]:
            sampler = loader.batch_sampler
            if not isinstance(sampler, MicroBatchSampler) or sampler.loop is not self._loop:
                raise ConfigurationError(
                    f"updates() of a loader with batch_sampler={type(sampler).__name__}: "
                    "give DataLoader(batch_sampler=balancer.micro_batch_sampler(...))"
                )
            ahead = loader.num_workers * (loader.prefetch_factor or 0)
            least = max(1, int(self._problem.bounds.lo[self.rank]) // sampler.micro_batch_size)
            return {}, 1 + -(-ahead // least)

        self._prepare(max(agree(self._exchange, check)))
        sampler = loader.batch_sampler
        assert isinstance(sampler, MicroBatchSampler)
        updates = MicroBatches(self._loop, [weighted.ddp for weighted in self._weighted], loader, sampler)
        self._loaders.append(updates)
        return updates

    def micro_batches(self, batch: Any) -> Iterator[Any]:
        """Split the batch in work into pieces that this rank's memory holds; run a backward pass on each.

        The pieces are as equal as can be and weighted exactly; the gradients are reduced with the last.  With
        ``Limits(memory=Memory(micro_batches=True))`` a rank may get batches beyond its cap.

        Args:
            batch: what the loader gave: tensors with a first dimension of the batch's size, lists of that length, and
                mappings, lists and tuples of them.

        Raises:
            ConfigurationError: the batch cannot be split, or none is in work.
        """
        work = self._loop.batch
        if work is None:
            raise ConfigurationError("micro_batches() outside the loop over the data loader: no batch is in work")
        self._check_pieces()
        sizes = pieces_of(work.processed, self._memory.piece_cap)
        ends = [sum(sizes[: j + 1]) for j in range(len(sizes))]
        pieces = (sliced(batch, end - n, end, work.processed) for n, end in zip(sizes, ends, strict=True))
        counting = sizes if work.size else [0] * len(sizes)
        ddps = [weighted.ddp for weighted in self._weighted]
        return run_pieces(self._loop, ddps, pieces, list(zip(counting, sizes, strict=True)))

    def _check_pieces(self) -> None:
        """ConfigurationError where ranks that run different numbers of passes would wait for one another."""
        if any(weighted.synchronises for weighted in self._weighted):
            raise ConfigurationError(
                "micro-batches with SyncBatchNorm: ranks run different numbers of forward passes, which its layers "
                "cannot; use GroupNorm or LayerNorm, or batches without micro-batches"
            )

    def _stream_loader(
        self,
        dataset: IterableDataset[Any],
        *,
        shuffle: bool | None,
        drop_last: bool,
        weight: Callable[[Any], float | torch.Tensor] | None,
        evaluate: bool,
        options: dict[str, Any],
    ) -> StreamLoader:
        """A loader of this rank's own stream."""

        def check() -> tuple[dict[str, Any], Any]:
            StreamLoader.check(options, shuffle=shuffle, evaluate=evaluate)
            if not drop_last:  # a rank whose stream has ended idles
                for weighted in self._weighted:
                    weighted.check_shortest(0, self.workers)
            return {"dataset": "iterable", "drop_last": drop_last, "weight": weight is not None}, None

        agree(self._exchange, check)
        self._prepare(1)
        loader = StreamLoader(
            self._loop,
            self._exchange,
            dataset,
            global_batch_size=self._global_batch_size,
            drop_last=drop_last,
            weight=weight,
            options=options,
        )
        self._loaders.append(loader)
        return loader

    def _prepare(self, lag: int) -> None:
        """Make the runtime with at least this lag."""
        runtime = self._loop.runtime_or_none
        if runtime is not None and runtime.lag >= lag:
            return
        if self._loop.next_step and runtime is not None:
            raise ConfigurationError(
                f"a loader with lag {lag} comes after iterations with lag {runtime.lag}: make all loaders first"
            )
        self._loop.runtime_or_none = Runtime(
            self._exchange,
            self._problem,
            self._policy,
            lag=lag,
            settings=self._settings,
            on_decision=self._recorder.decision,
        )
        self._recorder.begin(lag=lag)

    # -- what a script calls -----------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This process's rank among those that train together."""
        return self._exchange.rank

    @property
    def workers(self) -> int:
        """W."""
        return self._exchange.workers

    @property
    def global_batch_size(self) -> int:
        """X."""
        return self._global_batch_size

    @property
    def observe_only(self) -> bool:
        """Whether the balancer measures and proposes, but leaves the sizes alone."""
        return self._settings.observe_only

    @property
    def batch_size(self) -> int:
        """x_i of the batch in work on this rank, samples; 0 before the first."""
        return self._loop.batch.size if self._loop.batch else 0

    @property
    def total_size(self) -> int:
        """Samples of the global batch in work, over all ranks: X, fewer in a short last batch, 0 before the first."""
        return self._loop.batch.total if self._loop.batch else 0

    @property
    def last_decision(self) -> Decision | None:
        """What was decided at the last boundary, with its reason and forecasts."""
        runtime = self._loop.runtime_or_none
        return runtime.last_decision if runtime else None

    @property
    def weight(self) -> float:
        """``W x_i / X``: multiply the loss by it where gradients are *averaged* over ranks without our hook."""
        return self._loop.weight

    @property
    def share(self) -> float:
        """``x_i / X``: multiply the loss by it where gradients are *summed* over ranks without our hook."""
        return self._loop.share

    def report(self) -> None:
        """The backward pass has ended on this rank: call it where DDP's reduction is not used, before your own.

        Raises:
            ConfigurationError: the model is DDP (which reports by itself), or no batch is in work.
            ExchangeError: it was called twice in an iteration.
        """
        if self._weighted:
            raise ConfigurationError("report() has no effect with DistributedDataParallel, which reports by itself")
        if self._loop.batch is None or self._loop.step is None:
            raise ConfigurationError("report() outside an iteration: call it in the loop over the data loader")
        if self._loop.step.reported:
            raise ExchangeError("report() was called twice in one iteration: call it once, after the last backward")
        self._loop.gradients_ready()

    def mean(self, value: float | torch.Tensor) -> float | torch.Tensor:
        """The mean of a metric over the samples of the global batch (or what `weight` counts); collective.

        Args:
            value: this rank's mean over its own batch, a number or a tensor of any shape, the same on all ranks.

        Returns:
            ``sum_i x_i value_i / sum_i x_i``, in float64 if ``value`` is a float; bit-identical on all ranks.
            A rank with weight 0 does not enter, even with NaN.
        """
        batch = self._loop.batch
        weights = self._loop.weights_of(batch) if batch else None
        own = float(self.batch_size) if weights is None else float(weights[self.rank])
        rows = self._gather([own, *as_float64(value)])
        sizes, values = rows[:, 0], rows[:, 1:]
        used = sizes > 0
        total = math.fsum(sizes[used])
        if total == 0:
            raise ConfigurationError("mean() before the first batch, or of one that weighs nothing on all ranks")
        mean = np.array([math.fsum(sizes[used] * column[used]) / total for column in values.T])
        return _like(value, mean)

    def sum(self, value: float | torch.Tensor) -> float | torch.Tensor:
        """The sum of a value over all ranks, whatever their batches; collective, bit-identical on all ranks.

        For metrics that are counted over a whole evaluation: add up on each rank, then sum once.
        """
        rows = self._gather(as_float64(value))
        return _like(value, np.array([math.fsum(column) for column in rows.T]))

    def _gather(self, row: Sequence[float] | np.ndarray) -> np.ndarray:
        started_s = time.perf_counter()
        rows = self._exchange.gather([float(each) for each in row])
        self._loop.waited(time.perf_counter() - started_s)
        return rows

    def state_dict(self) -> dict[str, Any]:
        """Where the run is, as plain values: for a checkpoint, in mid-epoch too; saving rank 0's is enough."""
        return checkpoint.save(self._loop, self._loaders, global_batch_size=self._global_batch_size)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a checkpoint; call it on every rank after making the loaders, before the first iteration.

        W may differ from the checkpoint's: X and the order stay, so the epoch's remaining samples are used
        exactly once.

        Raises:
            ResumeError: the checkpoint has another X, seed, dataset length or number of loaders; names both.
        """
        checkpoint.load(saved, self._loop, self._loaders, global_batch_size=self._global_batch_size)

    def finish(self) -> None:
        """Take in what the last iteration reported, after leaving an epoch early; collective.

        The loader does it by itself at an epoch's end.
        """
        self._loop.boundary()

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Wrap a step, or the whole loop, to get one error on every rank if any runs out of memory.

        A script that lets its errors end it needs no guard: they are seen on their way out.

        Raises:
            BatchTooLargeError: some rank ran out of memory; names it, its batch and its new cap.
        """
        try:
            yield
        except Exception as error:
            self._memory.raise_translated(error)
            raise

    def close(self) -> None:
        """Release the exchange and the record; idempotent.  The communication hook stays on the model."""
        if self._closed:
            return
        self._closed = True
        self._memory.close()
        atexit.unregister(self.close)
        for weighted in self._weighted:
            weighted.detach()
        for loader in [*self._loaders, *self._evaluating]:
            loader.close()
        self._loop.sensors.close()
        self._exchange.close()
        self._recorder.close()

    def __enter__(self) -> LoadBalancer:
        """For use in a ``with`` block."""
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Close; an error that a rank's memory has caused becomes `BatchTooLargeError`."""
        try:
            if isinstance(error, Exception):
                self._memory.raise_translated(error)
        finally:
            self.close()


def _unwrapped(model: torch.nn.Module | Sequence[torch.nn.Module] | None) -> list[torch.nn.Module]:
    """The models, without what torch.compile wraps around them."""
    models = [] if model is None else [model] if isinstance(model, torch.nn.Module) else list(model)
    return [getattr(each, "_orig_mod", each) for each in models]


def _like(value: float | torch.Tensor, result: np.ndarray) -> float | torch.Tensor:
    """A result over ranks in the form of one rank's value."""
    if not isinstance(value, torch.Tensor):
        return float(result[0])
    dtype = value.dtype if value.dtype.is_floating_point else torch.float64
    return torch.from_numpy(result).reshape(value.shape).to(device=value.device, dtype=dtype)
