"""A DDP model whose gradients carry their batch's weight: by its communication hook, or where they are made."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

from lbbsp.errors import ConfigurationError
from lbbsp.exchange import Exchange
from lbbsp.integrations.torch.exchange import TorchExchange
from lbbsp.integrations.torch.hook import CommHook, weighted_hook
from lbbsp.integrations.torch.loop import Loop

__all__ = ["WeightedDdp"]

opaque: Any = torch.compiler.disable
"""Hooks read clocks and weights anew in each pass, which a compiler must not make part of its graph."""


class WeightedDdp:
    """Weights the gradients of one DDP model, and watches its passes.  `register`, then `attach`.

    Args:
        ddp: the model.
        group: its process group.
        exchange: names who is missing when the reduction fails.
    """

    def __init__(self, ddp: DistributedDataParallel, group: dist.ProcessGroup, exchange: Exchange) -> None:
        self.ddp, self._group, self._exchange = ddp, group, exchange
        self._loop_or_none: Loop | None = None
        self._synchronised = [m for m in ddp.modules() if isinstance(m, SyncBatchNorm)]
        # SyncBatchNorm's backward pass sums over ranks, so the weight must be in what it is given.
        self._at_output = bool(self._synchronised)
        self._at_source = False
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._called_s = math.nan

    def register(self, comm_hook: tuple[Any, CommHook] | None) -> None:
        """Register our communication hook, around the user's; ConfigurationError if the model has one."""
        try:
            self.ddp.register_comm_hook(None, weighted_hook(self, self._group, comm_hook))
        except (RuntimeError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"the model's gradient reduction cannot be hooked ({str(error).splitlines()[0]}); if you registered a "
                "communication hook, pass it as LoadBalancer(comm_hook=(state, hook)) instead"
            ) from error
        self.ddp._lbbsp_balanced = True  # type: ignore[assignment]

    def attach(self, loop: Loop) -> None:
        """Watch the forward passes: for gradients that only accumulate, and for DDP's own waits."""
        self._loop_or_none = loop
        ddp, module = self.ddp, self.ddp.module
        self._keep(ddp.register_forward_pre_hook(opaque(self._before_forward), prepend=True))
        # Between being called and running the module DDP sends rank 0's buffers to all ranks, and once rebuilds
        # its buckets together with them: waits, not compute.
        self._keep(module.register_forward_pre_hook(opaque(self._before_module), prepend=True))
        self._keep(ddp.register_forward_hook(opaque(loop.memory.after_forward), always_call=True))
        if self._at_output:
            self._keep(ddp.register_forward_hook(opaque(self._after_forward)))
        for layer in self._synchronised:
            self._keep(layer.register_forward_pre_hook(opaque(self._before_synchronised)))
            self._keep(layer.register_forward_hook(opaque(self._after_synchronised)))

    def _keep(self, handle: torch.utils.hooks.RemovableHandle) -> None:
        self._handles.append(handle)

    def check_shortest(self, total: int, workers: int) -> None:
        """ConfigurationError if an epoch's shortest batch leaves a rank without a sample under SyncBatchNorm."""
        if self._synchronised and total < workers:
            raise ConfigurationError(
                f"the last batch of an epoch has {total} sample(s) for {workers} ranks; with SyncBatchNorm each needs "
                "one, as an idle rank's would enter the statistics of all: give drop_last=True"
            )

    @property
    def synchronises(self) -> bool:
        """Whether layers of the model wait for those of the other ranks."""
        return bool(self._synchronised)

    def detach(self) -> None:
        """Stop watching; the communication hook stays on the model."""
        for handle in self._handles:
            handle.remove()

    @property
    def _loop(self) -> Loop:
        if self._loop_or_none is None:
            raise ConfigurationError("the model is not attached to a balancer's loop")
        return self._loop_or_none

    def _before_forward(self, ddp: torch.nn.Module, _: Any) -> None:
        if not torch.is_grad_enabled():
            return
        self._called_s = time.perf_counter()
        self._loop.forward_begins()
        if not (self.ddp.require_backward_grad_sync or self._at_source or self._at_output):
            self._weigh_at_source()

    def _before_module(self, module: torch.nn.Module, _: Any) -> None:
        if torch.is_grad_enabled() and not math.isnan(self._called_s):
            self._loop.waited(time.perf_counter() - self._called_s)
            self._called_s = math.nan

    def _weigh_at_source(self) -> None:
        """Gradients accumulate over batches of unequal weight: weigh each as it is made, from now on.

        The reduction sees only the accumulated sum, which one weight cannot make right.
        """
        self._at_source = True
        for parameter in self.ddp.parameters():
            if parameter.requires_grad:
                self._handles.append(parameter.register_hook(self._weighted))

    def _weighted(self, gradient: torch.Tensor) -> torch.Tensor:
        return _scaled(gradient, self._loop.weight) if self._loop.active is not None else gradient

    def _after_forward(self, ddp: torch.nn.Module, _: Any, output: Any) -> Any:
        """Weigh the gradients that will enter the model at its output."""
        loop, batch = self._loop, self._loop.batch
        if not torch.is_grad_enabled() or loop.active is None:
            return output

        def entering(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.requires_grad:
                return value
            value = value.view_as(value)
            value.register_hook(lambda gradient: _scaled(gradient, loop.weight_of(batch)))
            return value

        return tree_map(entering, output)

    def _before_synchronised(self, layer: torch.nn.Module, _: Any) -> None:
        if layer.training and torch.is_grad_enabled():
            self._loop.stopwatch.pause()

    def _after_synchronised(self, layer: torch.nn.Module, _: Any, output: torch.Tensor) -> None:
        """The layer's collectives wait for other ranks, forward and backward: leave them out of local compute."""
        if layer.training and torch.is_grad_enabled():
            stopwatch = self._loop.stopwatch
            stopwatch.resume()
            if output.grad_fn is not None:
                output.grad_fn.register_prehook(lambda *_: stopwatch.pause())
                output.grad_fn.register_hook(lambda *_: stopwatch.resume())

    # -- `GradientEvents` ---------------------------------------------------------------------------------------

    def share_for_bucket(self) -> float:
        """See `GradientEvents`."""
        loop = self._loop_or_none
        if loop is None or loop.batch is None or loop.active is None or self._at_source or self._at_output:
            return 1.0 / self._exchange.workers  # outside the loop gradients are averaged as in plain DDP
        return loop.share

    def gradients_ready(self) -> None:
        """See `GradientEvents`."""
        self._loop.gradients_ready()

    def gradients_reduced(self) -> None:
        """See `GradientEvents`."""
        self._loop.gradients_reduced()

    def breakable(self, future: torch.futures.Future[Any]) -> torch.futures.Future[Any]:
        """See `GradientEvents`."""
        return self._loop.memory.breakable(future)

    def reduction_failed(self, error: RuntimeError) -> BaseException:
        """See `GradientEvents`."""
        if isinstance(self._exchange, TorchExchange):
            return self._exchange.lost("the gradients", error, limit="as long as the process group lets it")
        return error


def _scaled(gradient: torch.Tensor, weight: float) -> torch.Tensor:
    """Weight 0 leaves NaN out too: a mean over nothing."""
    return gradient * weight if weight else torch.zeros_like(gradient)
