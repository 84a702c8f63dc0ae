"""What a job is: passed from the launcher to the workers, and what comes back."""

from __future__ import annotations

from pathlib import Path

import msgspec

__all__ = ["Job", "Outcome", "folder_of"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence of training segments, each from the same initial weights over the same global batches.

    Args:
        folder: where records and the outcome go.
        segments: "plain", "balanced", or the name of a policy to balance with, in order.
        iterations: of each segment.
        global_batch_size: X.
        side: image side, pixels; sets how long a sample takes.
        width: channels of the network's first stage; likewise.
        change_at: the iteration of each segment before which the launcher is asked to change the shares.
        restart_shares: whether the launcher is told of each segment's start, to begin its shares anew.
        launcher_pid: the launcher; when it is gone the workers end.
        loader_workers: loader processes a rank.
        time_limit_s: limit on each wait for other ranks.
    """

    folder: str
    segments: list[str]
    iterations: int
    global_batch_size: int
    side: int = 12
    width: int = 80
    change_at: int | None = None
    restart_shares: bool = False
    launcher_pid: int = 0
    loader_workers: int = 0
    time_limit_s: float = 120.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 writes at the end.

    Args:
        losses: of each segment, the global batch's mean loss in each iteration.
        measured_shares: the CPU share that each rank got when it spun before the first segment.
    """

    losses: list[list[float]]
    measured_shares: list[float]


def folder_of(job: Job, segment: int) -> Path:
    """The folder of a segment's records."""
    return Path(job.folder) / f"{segment}-{job.segments[segment]}"
