"""torch's own SyncBatchNorm on the CPU: its five CUDA kernels, written out, so that its collectives can be tested."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel


def _all_but_channels(x: Tensor) -> list[int]:
    return [d for d in range(x.dim()) if d != 1]


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.reshape([1, -1, *([1] * (x.dim() - 2))])


def _stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(x, _all_but_channels(x), correction=0)
    return mean, (variance + eps).rsqrt()


def _gather_stats(
    x: Tensor, means: Tensor, invstds: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    share = (counts / counts.sum()).reshape(-1, 1)
    mean = (share * means).sum(0)
    variance = (share * (invstds.pow(-2) - eps + (means - mean) ** 2)).sum(0)
    n = counts.sum()
    running_mean.mul_(1 - momentum).add_(momentum * mean)
    running_var.mul_(1 - momentum).add_(momentum * variance * n / (n - 1))
    return mean, (variance + eps).rsqrt()


def _elemt(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, invstd: Tensor, eps: float) -> Tensor:
    centred = (x - _per_channel(mean, x)) * _per_channel(invstd, x)
    return centred * _per_channel(weight, x) + _per_channel(bias, x)


def _backward_reduce(
    dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor, *_: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    sum_dy = dy.sum(_all_but_channels(x))
    sum_dy_xmu = (dy * (x - _per_channel(mean, x))).sum(_all_but_channels(x))
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy


def _backward_elemt(
    dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor, sum_dy: Tensor, sum_dy_xmu: Tensor,
    counts: Tensor,
) -> Tensor:  # fmt: skip
    n = counts.sum()
    projected = (x - _per_channel(mean, x)) * _per_channel(invstd**2 * sum_dy_xmu / n, x)
    return (dy - _per_channel(sum_dy / n, x) - projected) * _per_channel(invstd * weight, x)


@contextlib.contextmanager
def on_the_cpu() -> Iterator[None]:
    """Let SyncBatchNorm take CPU tensors."""
    kernels = {
        "batch_norm_stats": _stats,
        "batch_norm_gather_stats_with_counts": _gather_stats,
        "batch_norm_elemt": _elemt,
        "batch_norm_backward_reduce": _backward_reduce,
        "batch_norm_backward_elemt": _backward_elemt,
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch._C, "_get_privateuse1_backend_name", return_value="cpu"))
        stack.enter_context(mock.patch.object(DistributedDataParallel, "_passing_sync_batchnorm_handle"))
        for name, kernel in kernels.items():
            stack.enter_context(mock.patch.object(torch, name, kernel))
        yield
