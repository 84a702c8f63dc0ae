"""A run's place as plain values, and back: mid-epoch, with another number of ranks too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lbbsp.errors import ResumeError
from lbbsp.integrations.torch.loader import BalancedLoader
from lbbsp.integrations.torch.loop import Loop
from lbbsp.integrations.torch.microbatch import MicroBatches
from lbbsp.integrations.torch.stream import StreamLoader

__all__ = ["load", "save"]

STATE_VERSION = 1


def save(
    loop: Loop, loaders: Sequence[BalancedLoader | MicroBatches | StreamLoader], *, global_batch_size: int
) -> dict[str, Any]:
    """Where the run is."""
    return {
        "version": STATE_VERSION,
        "global_batch_size": global_batch_size,
        "step": loop.next_step,
        "loaders": [loader.state_dict() for loader in loaders],
        "runtime": loop.runtime.state_dict(),
    }


def load(
    saved: dict[str, Any],
    loop: Loop,
    loaders: Sequence[BalancedLoader | MicroBatches | StreamLoader],
    *,
    global_batch_size: int,
) -> None:
    """Go on from there.

    Raises:
        ResumeError: the checkpoint has another X, seed, dataset length or number of loaders; names both.
    """
    runtime = loop.runtime
    if saved.get("version") != STATE_VERSION:
        raise ResumeError(f"the checkpoint has version {saved.get('version')}, this lbbsp reads {STATE_VERSION}")
    if saved["global_batch_size"] != global_batch_size:
        raise ResumeError(
            f"the checkpoint has global_batch_size={saved['global_batch_size']}, this run "
            f"{global_batch_size}: the learning rate and the order belong to the former"
        )
    if len(saved["loaders"]) != len(loaders):
        raise ResumeError(
            f"the checkpoint has {len(saved['loaders'])} loader(s), this run {len(loaders)}: "
            "make the same loaders, in the same order, before load_state_dict"
        )
    for loader, state in zip(loaders, saved["loaders"], strict=True):
        if ("stream" in state) != isinstance(loader, StreamLoader):
            raise ResumeError("the checkpoint's loader is of an iterable dataset and this run's is not, or the reverse")
        loader.load_state_dict(state)
    loop.next_step = int(saved["step"])
    runtime.load_state_dict(saved["runtime"], iteration=loop.next_step)
    loop.recorder.event("resume", iteration=loop.next_step, detail=f"at step {loop.next_step}")
