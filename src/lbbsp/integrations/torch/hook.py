"""The DDP communication hook that weights gradients by batch share (I4).

DDP hands each bucket of gradients to the hook when it is ready on this rank.  Without a hook of the user's the
bucket is multiplied by ``x_i / X`` and summed over ranks; around a user's hook, which averages, it is multiplied
by ``W x_i / X`` before.  Either way the result is ``sum_i (x_i / X) g_i``.
"""

# No postponed annotations here: DDP compares the hook's annotations with the types themselves.
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from lbbsp.integrations.torch.memory.failure import outcome_of

__all__ = ["CommHook", "GradientEvents", "weighted_hook"]

CommHook = Callable[[Any, GradBucket], torch.futures.Future[torch.Tensor]]


class GradientEvents(Protocol):
    """What the hook needs of the balancer."""

    def share_for_bucket(self) -> float:
        """``x_i / X`` of the batch in work, or ``1 / W`` where the gradients carry their weight already."""
        ...

    def gradients_ready(self) -> None:
        """The last bucket is ready on this rank."""
        ...

    def gradients_reduced(self) -> None:
        """The last bucket is reduced over all ranks."""
        ...

    def breakable(self, future: torch.futures.Future[Any]) -> torch.futures.Future[Any]:
        """A future of ``(value, error)`` of ``future`` that is done early, with ``(None, None)``, if a rank fails."""
        ...

    def reduction_failed(self, error: RuntimeError) -> BaseException:
        """The error to raise in place of ``error``, naming who is missing or has failed."""
        ...


def weighted_hook(
    events: GradientEvents, group: dist.ProcessGroup, inner: tuple[Any, CommHook] | None
) -> Callable[[object, GradBucket], torch.futures.Future[torch.Tensor]]:
    """The hook to register, around the user's ``inner`` (state, hook) if there is one."""
    workers = group.size()

    def hook(_: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        last = bucket.is_last()
        share = events.share_for_bucket()
        factor = share if inner is None else share * workers
        if factor == 0.0:
            buffer.zero_()  # a mean over nothing is NaN, which weight 0 must leave out
        elif factor != 1.0:
            buffer.mul_(factor)
        if inner is None:
            future = dist.all_reduce(buffer, group=group, async_op=True).get_future()
            if last:
                events.gradients_ready()
        else:
            if last:
                events.gradients_ready()  # before the user's hook, which may wait for the other ranks
            state, inner_hook = inner
            future = inner_hook(state, bucket)

        def reduced(outcome: tuple[Any, RuntimeError | None]) -> torch.Tensor:
            value, error = outcome
            if value is None:
                error = error or RuntimeError("a rank has failed")
                raise events.reduction_failed(error) from error
            if last:
                events.gradients_reduced()
            return value if isinstance(value, torch.Tensor) else value[0]

        weighted: torch.futures.Future[torch.Tensor]
        if buffer.is_cuda:  # there the host does not wait here, and the future carries the streams to wait for
            weighted = future.then(lambda done: reduced(outcome_of(done)))
        else:
            weighted = events.breakable(future).then(lambda done: reduced(done.value()))
        return weighted

    hook.__qualname__ = "lbbsp_weighted_hook"
    return hook
