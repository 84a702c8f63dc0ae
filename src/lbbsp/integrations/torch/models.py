"""What a balancer must know of the models that it is given: normalisation over the batch, who reduces gradients."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from lbbsp.errors import ConfigurationError
from lbbsp.integrations.torch.limits import Limits

__all__ = ["check_models", "least_size"]


def check_models(models: Sequence[torch.nn.Module], comm_hook: Any) -> None:
    """ConfigurationError where the models cannot be balanced together, or a hook would do nothing."""
    ddps = [model for model in models if isinstance(model, DistributedDataParallel)]
    others = [type(model).__name__ for model in models if not isinstance(model, DistributedDataParallel)]
    if len(models) > 1 and others:
        raise ConfigurationError(f"several models must all be DistributedDataParallel; {others[0]} is not")
    if len({tuple(dist.get_process_group_ranks(ddp.process_group)) for ddp in ddps}) > 1:
        raise ConfigurationError("the models train on different ranks: give each its own LoadBalancer and loader")
    if len({id(ddp) for ddp in ddps}) < len(ddps):
        raise ConfigurationError("a model is given twice: give each once")
    if any(getattr(model, "_lbbsp_balanced", False) for model in models):
        raise ConfigurationError(
            "the model already has a LoadBalancer: use that one, or wrap the module in a new DistributedDataParallel"
        )
    if comm_hook is not None and not ddps:
        named = others[0] if others else "no model"
        raise ConfigurationError(f"comm_hook has no effect on {named}: it goes with a DistributedDataParallel model")
    if comm_hook is not None and len(ddps) > 1:
        raise ConfigurationError("comm_hook has a state of one model's: give each model its own LoadBalancer")


def least_size(models: Sequence[torch.nn.Module], limits: Limits, x: int, *, rank: int, workers: int) -> int:
    """The least size where the limits name none: 1, or 2 where BatchNorm is found, and rank 0 warns of it.

    Raises:
        ConfigurationError: ranks may be idle, with SyncBatchNorm: the sample that an idle rank runs would enter
            the statistics of all.
    """
    names = [(name, m) for model in models for name, m in model.named_modules() if isinstance(m, _BatchNorm)]
    if limits.min_size == 0 and any(isinstance(m, SyncBatchNorm) for _, m in names):
        raise ConfigurationError(
            "min_size=0 with SyncBatchNorm: an idle rank's sample would enter the statistics of all; give 1 or more"
        )
    plain = [name for name, m in names if not isinstance(m, SyncBatchNorm)]
    if not plain or (limits.min_size or 0) >= 2:
        return 1
    fits = x >= 2 * workers and (limits.max_size is None or limits.max_size >= 2)
    raised = limits.min_size is None and fits
    if rank == 0:
        kept = "the least size is set to 2" if raised else f"but the least size is {limits.min_size or 1}"
        warnings.warn(
            f"the model has BatchNorm ({plain[0]}), which cannot be trained on a single sample: {kept}; "
            "Limits(min_size=2) says so too, data_loader(drop_last=True) leaves out a last batch that may be "
            "shorter. Its statistics are of each rank's own batch: SyncBatchNorm's are of all ranks'",
            UserWarning,
            stacklevel=2,
        )
    return 2 if raised else 1
