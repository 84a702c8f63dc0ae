"""What a cluster file may say.  Unknown keys are errors."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["ClusterSpec", "ProfileSpec", "TimeSpec", "TraceSpec", "WanderSpec", "WorkerSpec"]

AtLeastZero = Annotated[float, Meta(ge=0, le=1e12)]
Positive = Annotated[float, Meta(gt=0, le=1e12)]
Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]


class TimeSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """``T(x) = max(flat_s, fixed_s + per_sample_s x)``."""

    per_sample_s: Positive
    fixed_s: AtLeastZero = 0.0
    flat_s: AtLeastZero = 0.0


class ProfileSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Measured times at some sizes, ascending; straight lines between and beyond them."""

    sizes: Annotated[list[Count], Meta(min_length=2)]
    times_s: Annotated[list[Positive], Meta(min_length=2)]


class TraceSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A recorded course: values in the file itself, or a column of a CSV file with a heading.

    ``kind``: ``speed`` in samples/s, ``availability`` as a share of the worker's own speed, ``cpu_percent`` that
    others use, of which 100 less it is available, at least 5.  ``hold``: iterations that each value lasts.
    ``repeat``: begin again at the end.
    """

    kind: Literal["speed", "availability", "cpu_percent"]
    values: list[float] | None = None
    file: str | None = None
    column: str | None = None
    hold: Count = 1
    repeat: bool = False


class WanderSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Speeds that wander: see `lbbsp.sim.truth.wandering`."""

    spread: AtLeastZero
    correlation: Positive


class WorkerSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """``count`` workers alike; how fast is told by ``speed_samples_per_s``, ``time``, ``profile`` or a speed trace."""

    count: Count = 1
    speed_samples_per_s: Positive | None = None
    time: TimeSpec | None = None
    profile: ProfileSpec | None = None
    trace: TraceSpec | None = None
    wander: WanderSpec | None = None
    noise: AtLeastZero = 0.0
    least_samples: Whole = 1
    most_samples: Count | None = None
    joins_at: Whole = 0
    leaves_at: Count | None = None


class ClusterSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A cluster and the job on it."""

    global_batch_size: Count
    iterations: Count
    workers: Annotated[list[WorkerSpec], Meta(min_length=1)]
    granularity: Count = 1
    lag: Count = 1
    communication_s: AtLeastZero = 0.0
    message_s: AtLeastZero = 0.0
    restart_s: AtLeastZero = 0.0
    seed: Whole = 0
