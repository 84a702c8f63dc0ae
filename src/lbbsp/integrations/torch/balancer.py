"""LoadBalancer: balanced PyTorch data-parallel training in three more lines than plain DDP."""

from __future__ import annotations

import atexit
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

import lbbsp
from lbbsp.core.policy import Policy, Problem, resolve_policy
from lbbsp.core.types import Bounds, IntArray
from lbbsp.core.weights import mean_weight, share
from lbbsp.engine import Decision
from lbbsp.errors import ConfigurationError, ExchangeError, ResumeError
from lbbsp.exchange import Exchange
from lbbsp.exchange.base import raise_together
from lbbsp.integrations.torch.exchange import TorchExchange, as_float64
from lbbsp.integrations.torch.hook import CommHook, weighted_hook
from lbbsp.integrations.torch.loader import BalancedLoader, LoaderSpec
from lbbsp.integrations.torch.timing import Stopwatch, stopwatch_for
from lbbsp.recorder import Recorder, Step
from lbbsp.runtime import Runtime, Settings
from lbbsp.telemetry.sensors import Sensors

__all__ = ["Limits", "LoadBalancer"]

STATE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The batch sizes that this rank can take, in samples; ranks may differ in all but the granularity.

    Args:
        min_size: least; 0 lets the rank be idle, which then runs one sample with weight 0.
        max_size: most, for example what its memory holds; None for no limit.
        granularity: every size is a multiple of it; the global batch must be one too.
    """

    min_size: int = 1
    max_size: int | None = None
    granularity: int = 1


@dataclass(slots=True)
class _Batch:
    """The batch in work on this rank: what its gradients weigh."""

    step: int
    size: int
    processed: int
    total: int


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
            communication hook.  Anything else (a model whose gradients you reduce yourself, or None) leaves
            the reduction alone: multiply the loss by `weight` and call `report` after the backward pass.
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
        model: torch.nn.Module | None,
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
        model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
        ddp = model if isinstance(model, DistributedDataParallel) else None
        group = ddp.process_group if ddp is not None else dist.group.WORLD
        assert group is not None
        self._settings = settings or Settings()
        self._limits = limits or Limits()
        self._global_batch_size = global_batch_size
        self._group: dist.ProcessGroup = group
        self._exchange: Exchange = TorchExchange.beside(group, time_limit_s=self._settings.time_limit_s)
        self._closed = False
        self._runtime: Runtime | None = None
        self._loaders: list[BalancedLoader] = []
        self._active: BalancedLoader | None = None
        self._next_step = 0
        self._batch: _Batch | None = None
        self._step: Step | None = None
        self._weighted_at_source = False
        self._forwarded = False  # a forward pass that needs gradients has run since the batch was handed out
        self._carried = 0  # samples of earlier batches whose gradients only accumulate, in the current lap
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._ddp = ddp
        try:
            self._policy, self._problem = self._agree(model, policy, comm_hook)
        except BaseException:
            self._exchange.close()
            raise
        device = next((p.device for p in model.parameters()), torch.device("cpu")) if model else torch.device("cpu")
        self._stopwatch: Stopwatch = stopwatch_for(device)
        self._device = device
        self._recorder = Recorder.open(
            telemetry,
            rank=self.rank,
            problem=self._problem,
            policy=self._policy.name,
            settings=self._settings,
            machine={"torch": torch.__version__, "device": str(device)},
        )
        self._sensors = Sensors(gpu=device.index if device.type == "cuda" else None)
        if ddp is not None:
            self._attach(ddp)
        atexit.register(self.close)  # gloo's threads must end before the interpreter does

    # -- setting up -------------------------------------------------------------------------------------------

    def _agree(
        self, model: torch.nn.Module | None, policy: str | Policy[Any], comm_hook: tuple[Any, CommHook] | None
    ) -> tuple[Policy[Any], Problem]:
        """Validate on every rank, compare, and gather the bounds; errors are raised on every rank."""
        chosen: list[Policy[Any]] = []
        x, limits = self._global_batch_size, self._limits

        def check() -> str:
            if isinstance(x, bool) or not isinstance(x, int) or x < 1:
                raise ConfigurationError(f"global_batch_size={x!r}: must be an integer of 1 or more")
            chosen.append(resolve_policy(policy))
            bounds = _own_bounds(limits, x)
            if model is not None and getattr(model, "_lbbsp_balanced", False):
                raise ConfigurationError(
                    "the model already has a LoadBalancer: use that one, or wrap the module in a new "
                    "DistributedDataParallel"
                )
            synchronised = [
                name for name, m in (model.named_modules() if model else ()) if isinstance(m, SyncBatchNorm)
            ]
            if synchronised:
                raise ConfigurationError(
                    f"the model has SyncBatchNorm ({synchronised[0]}), whose gradients cross ranks before they are "
                    "weighted: with unequal batches the update would be wrong; use GroupNorm or LayerNorm instead"
                )
            if self._ddp is not None:
                self._register(self._ddp, comm_hook)
            elif comm_hook is not None:
                raise ConfigurationError(
                    f"comm_hook has no effect on {type(model).__name__}: it goes with a DistributedDataParallel model"
                )
            same = {
                "lbbsp": lbbsp.__version__,
                "global_batch_size": x,
                "policy": repr(chosen[0]),
                "granularity": limits.granularity,
                "settings": asdict(self._settings),
            }
            return json.dumps({"same": same, "bounds": bounds})

        answers = [json.loads(text) for text in raise_together(self._exchange, check)]
        _raise_if_different([answer["same"] for answer in answers])
        lo, hi = zip(*(answer["bounds"] for answer in answers), strict=True)
        return chosen[0], Problem(x, Bounds(np.array(lo), np.array(hi), limits.granularity))

    def _register(self, ddp: DistributedDataParallel, comm_hook: tuple[Any, CommHook] | None) -> None:
        try:
            ddp.register_comm_hook(None, weighted_hook(self, self._group, comm_hook))
        except (RuntimeError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"the model's gradient reduction cannot be hooked ({str(error).splitlines()[0]}); if you registered a "
                "communication hook, pass it as LoadBalancer(comm_hook=(state, hook)) instead"
            ) from error
        ddp._lbbsp_balanced = True  # type: ignore[assignment]

    def _attach(self, ddp: DistributedDataParallel) -> None:
        """Watch the forward passes: for gradients that only accumulate, and for DDP's own waits."""
        self._handles.append(ddp.register_forward_pre_hook(self._before_forward, prepend=True))
        # Between being called and running the module DDP sends rank 0's buffers to all ranks, and once rebuilds
        # its buckets together with them: waits, not compute.
        self._handles.append(ddp.module.register_forward_pre_hook(self._before_module, prepend=True))
        self._ddp_called_s = math.nan

    def data_loader(
        self,
        dataset: Dataset[Any],
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        **options: Any,
    ) -> BalancedLoader:
        """A loader of this rank's share of each global batch; collective.

        Args:
            dataset: map-style (``__len__`` and ``__getitem__``), the same on every rank.
            shuffle: whether an epoch's order is a permutation set by ``(seed, epoch)``.
            seed: of the order and of the loader workers' random numbers; 0 or more.
            drop_last: leave out the short last batch instead of splitting it.
            **options: ``num_workers``, ``prefetch_factor``, ``collate_fn``, ``pin_memory``,
                ``persistent_workers``, ``worker_init_fn``, ``timeout``, ``generator`` and
                ``multiprocessing_context`` of torch's DataLoader, with its meanings.

        Raises:
            ConfigurationError: the dataset is empty or shorter than a global batch, ranks differ, or an option
                is unknown, has no effect, or is the balancer's own (``batch_size``, ``sampler``, ...).
        """
        specs: list[LoaderSpec] = []

        def check() -> str:
            spec = LoaderSpec.check(
                dataset,
                self._global_batch_size,
                shuffle=shuffle,
                seed=seed,
                drop_last=drop_last,
                options=options,
            )
            specs.append(spec)
            same = {"length": spec.plan.length, "seed": seed, "shuffle": shuffle, "drop_last": drop_last}
            return json.dumps({"same": same, "lag": spec.lag})

        answers = [json.loads(text) for text in raise_together(self._exchange, check)]
        _raise_if_different([answer["same"] for answer in answers])
        self._prepare(max(answer["lag"] for answer in answers))
        loader = BalancedLoader(self, dataset, specs[0])
        self._loaders.append(loader)
        return loader

    def _prepare(self, lag: int) -> None:
        """Make the runtime with at least this lag."""
        if self._runtime is not None and self._runtime.lag >= lag:
            return
        if self._next_step and self._runtime is not None:
            raise ConfigurationError(
                f"a loader with lag {lag} comes after iterations with lag {self._runtime.lag}: make all loaders first"
            )
        self._runtime = Runtime(
            self._exchange,
            self._problem,
            self._policy,
            lag=lag,
            settings=self._settings,
            on_decision=self._recorder.decision,
        )
        self._recorder.begin(lag=lag)

    def _runtime_or_raise(self) -> Runtime:
        if self._runtime is None:
            raise ConfigurationError("no data loader yet: call balancer.data_loader(dataset) first")
        return self._runtime

    # -- an iteration, as the loader drives it -------------------------------------------------------------

    def _enter(self, loader: BalancedLoader) -> None:
        if self._active is not None and self._active is not loader:
            raise ConfigurationError("another loader of this balancer is in the middle of an epoch: finish it first")
        self._active = loader

    def _leave(self, loader: BalancedLoader) -> None:
        if self._active is loader:
            self._active = None

    def _boundary(self) -> None:
        """All ranks meet: take in the reports of the iteration that ended, and decide."""
        if self._step is not None:
            self._step.ended_s = time.perf_counter()
            if self._ddp is None and not self._step.reported:
                raise ConfigurationError(
                    "balancer.report() was not called in this iteration: without a DistributedDataParallel model, "
                    "call it after each backward pass, before your own gradient reduction"
                )
        self._runtime_or_raise().boundary()
        if self._step is not None:
            self._recorder.iteration(self._step)
            accumulates = self._batch is not None and self._forwarded and not self._step.reported
            self._carried = self._carried + self._batch.processed if accumulates and self._batch else 0
            self._step = None

    def _ask(self) -> None:
        """The batch is being asked for: local compute begins."""
        self._step = Step(iteration=self._next_step, asked_s=time.perf_counter())
        if not self._carried:  # an accumulating batch ends without a wait, so its lap goes on
            self._stopwatch.start()
        self._forwarded = False

    def _hand_out(self, *, epoch: int, sizes: IntArray, total: int) -> None:
        """This rank has its batch."""
        size = int(sizes[self.rank])
        self._batch = _Batch(self._next_step, size, max(size, 1), total)
        if self._step is not None:
            self._step.epoch, self._step.size, self._step.total = epoch, size, total
            self._step.input_s = time.perf_counter() - self._step.asked_s
        self._next_step += 1

    # -- the forward and backward pass, as DDP drives them --------------------------------------------------

    def _before_forward(self, ddp: torch.nn.Module, _: Any) -> None:
        if not torch.is_grad_enabled():
            return
        self._ddp_called_s = time.perf_counter()
        self._forwarded = True
        if not self._ddp_syncs() and not self._weighted_at_source:
            self._weigh_at_source()

    def _before_module(self, module: torch.nn.Module, _: Any) -> None:
        if torch.is_grad_enabled() and not math.isnan(self._ddp_called_s):
            self._waited(time.perf_counter() - self._ddp_called_s)
            self._ddp_called_s = math.nan

    def _ddp_syncs(self) -> bool:
        return self._ddp is None or bool(self._ddp.require_backward_grad_sync)

    def _waited(self, seconds: float) -> None:
        self._stopwatch.exclude(seconds)
        if self._step is not None:
            self._step.wait_s += seconds

    def _weigh_at_source(self) -> None:
        """Gradients accumulate over batches of unequal weight: weigh each as it is made, from now on.

        The reduction sees only the accumulated sum, which one weight cannot make right.
        """
        assert self._ddp is not None
        self._weighted_at_source = True
        for parameter in self._ddp.parameters():
            if parameter.requires_grad:
                self._handles.append(parameter.register_hook(self._weighted))

    def _weighted(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * self.weight if self._active is not None else gradient

    def share_for_bucket(self) -> float:
        """See `GradientEvents`."""
        if self._batch is None or self._active is None or self._weighted_at_source:
            return 1.0 / self.workers  # outside the loop gradients are averaged as in plain DDP
        return share(self._batch.size, self._batch.total)

    def gradients_ready(self) -> None:
        """See `GradientEvents`."""
        if self._batch is not None and self._step is not None and not self._step.reported:
            self._send_report()

    def gradients_reduced(self) -> None:
        """See `GradientEvents`."""
        if self._step is not None:
            self._step.reduced_s = time.perf_counter()

    def reduction_failed(self, error: RuntimeError) -> BaseException:
        """See `GradientEvents`."""
        if isinstance(self._exchange, TorchExchange):
            return self._exchange.lost("the gradients", error, limit="as long as the process group lets it")
        return error

    def _send_report(self) -> None:
        assert self._batch is not None
        assert self._step is not None
        lap = self._stopwatch.stop(self._batch.processed + self._carried)
        self._step.reported = True
        self._step.ready_s = time.perf_counter()
        self._step.compute_s = lap.seconds
        at_hand = self._sensors.latest
        self._step.cpu, self._step.memory = at_hand.cpu, at_hand.memory
        self._runtime_or_raise().report(
            self._step.iteration, lap.size, lap.seconds, cpu=at_hand.cpu, memory=at_hand.memory
        )

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
        return self._batch.size if self._batch else 0

    @property
    def last_decision(self) -> Decision | None:
        """What was decided at the last boundary, with its reason and forecasts."""
        return self._runtime.last_decision if self._runtime else None

    @property
    def weight(self) -> float:
        """``W x_i / X``: multiply the loss by it where gradients are *averaged* over ranks without our hook."""
        if self._batch is None:
            return 1.0
        return mean_weight(self._batch.size, self._batch.total, self.workers)

    @property
    def share(self) -> float:
        """``x_i / X``: multiply the loss by it where gradients are *summed* over ranks without our hook."""
        if self._batch is None:
            return 1.0 / self.workers
        return share(self._batch.size, self._batch.total)

    def report(self) -> None:
        """The backward pass has ended on this rank: call it where DDP's reduction is not used, before your own.

        Raises:
            ConfigurationError: the model is DDP (which reports by itself), or no batch is in work.
            ExchangeError: it was called twice in an iteration.
        """
        if self._ddp is not None:
            raise ConfigurationError("report() has no effect with DistributedDataParallel, which reports by itself")
        if self._batch is None or self._step is None:
            raise ConfigurationError("report() outside an iteration: call it in the loop over the data loader")
        if self._step.reported:
            raise ExchangeError("report() was called twice in one iteration: call it once, after the last backward")
        self._send_report()

    def mean(self, value: float | torch.Tensor) -> float | torch.Tensor:
        """The mean of a metric over the samples of the global batch; collective.

        Args:
            value: this rank's mean over its own batch, a number or a tensor of any shape, the same on all ranks.

        Returns:
            ``sum_i x_i value_i / sum_i x_i``, in float64 if ``value`` is a float; bit-identical on all ranks.
            A rank with weight 0 does not enter, even with NaN.
        """
        started_s = time.perf_counter()
        rows = self._exchange.gather([float(self.batch_size), *as_float64(value)])
        self._waited(time.perf_counter() - started_s)
        sizes, values = rows[:, 0], rows[:, 1:]
        used = sizes > 0
        total = math.fsum(sizes[used])
        if total == 0:
            raise ConfigurationError("mean() before the first batch: no rank has a sample yet")
        mean = np.array([math.fsum(sizes[used] * column[used]) / total for column in values.T])
        if not isinstance(value, torch.Tensor):
            return float(mean[0])
        dtype = value.dtype if value.dtype.is_floating_point else torch.float64
        return torch.from_numpy(mean).reshape(value.shape).to(device=value.device, dtype=dtype)

    def state_dict(self) -> dict[str, Any]:
        """Where the run is, as plain values: for a checkpoint, in mid-epoch too; saving rank 0's is enough."""
        return {
            "version": STATE_VERSION,
            "global_batch_size": self._global_batch_size,
            "step": self._next_step,
            "loaders": [loader.state_dict() for loader in self._loaders],
            "runtime": self._runtime_or_raise().state_dict(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a checkpoint; call it on every rank after making the loaders, before the first iteration.

        W may differ from the checkpoint's: X and the order stay, so the epoch's remaining samples are used
        exactly once.

        Raises:
            ResumeError: the checkpoint has another X, seed, dataset length or number of loaders; names both.
        """
        runtime = self._runtime_or_raise()
        if saved.get("version") != STATE_VERSION:
            raise ResumeError(f"the checkpoint has version {saved.get('version')}, this lbbsp reads {STATE_VERSION}")
        if saved["global_batch_size"] != self._global_batch_size:
            raise ResumeError(
                f"the checkpoint has global_batch_size={saved['global_batch_size']}, this run "
                f"{self._global_batch_size}: the learning rate and the order belong to the former"
            )
        if len(saved["loaders"]) != len(self._loaders):
            raise ResumeError(
                f"the checkpoint has {len(saved['loaders'])} loader(s), this run {len(self._loaders)}: "
                "make the same loaders, in the same order, before load_state_dict"
            )
        for loader, state in zip(self._loaders, saved["loaders"], strict=True):
            loader.load_state_dict(state)
        self._next_step = int(saved["step"])
        runtime.load_state_dict(saved["runtime"], iteration=self._next_step)
        self._recorder.event("resume", iteration=self._next_step, detail=f"at step {self._next_step}")

    def finish(self) -> None:
        """Take in what the last iteration reported, after leaving an epoch early; collective.

        The loader does it by itself at an epoch's end.
        """
        self._boundary()

    def close(self) -> None:
        """Release the exchange and the record; the model's gradients stay weighted.  Idempotent."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        for handle in self._handles:
            handle.remove()
        for loader in self._loaders:
            loader.close()
        self._sensors.close()
        self._exchange.close()
        self._recorder.close()

    def __enter__(self) -> LoadBalancer:
        """For use in a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def _own_bounds(limits: Limits, x: int) -> tuple[int, int]:
    """This rank's (lo, hi), checked as far as one rank can."""
    lo = limits.min_size
    hi = x if limits.max_size is None else min(limits.max_size, x)
    if limits.granularity > 1 and lo:
        lo = max(lo, limits.granularity)
    if limits.max_size is not None and limits.max_size < limits.min_size:
        raise ConfigurationError(f"limits: max_size={limits.max_size} < min_size={limits.min_size}")
    Bounds(np.array([min(lo, hi)]), np.array([hi]), limits.granularity)
    return min(lo, hi), hi


def _raise_if_different(answers: list[dict[str, Any]]) -> None:
    """ConfigurationError where ranks were given different settings; all ranks see all answers."""
    for name in answers[0]:
        values = [answer[name] for answer in answers]
        if any(value != values[0] for value in values):
            other = next(rank for rank, value in enumerate(values) if value != values[0])
            raise ConfigurationError(
                f"{name} differs between ranks: rank 0 has {values[0]}, rank {other} has {values[other]}; give the "
                "same on every rank (a policy of your own needs a repr that shows its values, as dataclasses have)"
            )
