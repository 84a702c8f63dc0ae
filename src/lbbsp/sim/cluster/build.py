"""The cluster behind a description, and a scheme's run on it, joins and leaves included."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.core.policy import Problem
from lbbsp.core.time_models import AffineTimes, TableTimes
from lbbsp.core.types import Bounds, FloatArray, IntArray
from lbbsp.errors import ConfigurationError
from lbbsp.sim.cluster.schema import ClusterSpec, ProfileSpec, WorkerSpec
from lbbsp.sim.schemes import Gradients, Job, Scheme, Timeline
from lbbsp.sim.truth import ModelTruth, wandering

__all__ = ["Cluster", "Span", "build", "check_size"]

MOST_TABLE = 50_000_000
"""Entries in a table of profiled times (400 MB)."""
MOST_RECORD = 200_000_000
"""Worker iterations in one run; a record of them takes some 5 GB."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Span:
    """Iterations with the same members.

    Args:
        start: the first iteration.
        members: which workers are in.
        job: what they run.
    """

    start: int
    members: IntArray
    job: Job


@dataclass(frozen=True, eq=False, kw_only=True)
class Cluster:
    """A described cluster.

    Args:
        workers: W, over all spans.
        spans: in order; one if nobody joins or leaves.
        restart_s: seconds that a change of members costs.
        description: what it was built from.
    """

    workers: int
    spans: tuple[Span, ...]
    restart_s: float
    description: ClusterSpec

    @property
    def iterations(self) -> int:
        """K."""
        return self.description.iterations

    def run(self, scheme: Scheme) -> Timeline:
        """Run ``scheme`` over all spans.  Between two of them the job restarts, and balancing starts anew."""
        runs = [scheme.run(span.job) for span in self.spans]
        if len(runs) == 1:
            return runs[0]
        ends, at_s = [], 0.0
        for run in runs:
            ends.append(run.update_s + at_s)
            at_s = float(ends[-1][-1]) + self.restart_s

        def gradients() -> Gradients:
            parts, before = [], 0
            for span, run in zip(self.spans, runs, strict=True):
                g = run.gradients
                parts.append((span.members[g.worker], g.size, g.read + before, g.update + before))
                before += run.update_s.size
            worker, size, read, update = (np.concatenate(column) for column in zip(*parts, strict=True))
            return Gradients(worker=worker, size=size, read=read, update=update)

        return Timeline(
            scheme=scheme.name,
            update_s=np.concatenate(ends),
            samples=sum(run.samples for run in runs),
            global_batch_size=self.description.global_batch_size,
            list_gradients=gradients,
            wasted=sum(run.wasted for run in runs),
        )


def check_size(spec: ClusterSpec, name: str) -> None:
    """Raise ConfigurationError if a record of the run would not fit into memory."""
    workers = sum(worker.count for worker in spec.workers)
    if workers * spec.iterations > MOST_RECORD:
        raise ConfigurationError(
            f"{name}: {workers} workers for {spec.iterations} iterations are {workers * spec.iterations} worker "
            f"iterations, of at most {MOST_RECORD}; lower iterations to {max(1, MOST_RECORD // workers)}"
        )


def build(spec: ClusterSpec, traces: dict[int, FloatArray], name: str) -> Cluster:
    """The cluster of a checked description.

    Args:
        spec: the description.
        traces: by the entry of ``spec.workers``: a value an iteration, shape ``(K,)``.
        name: of the file, for errors.

    Raises:
        ConfigurationError: the parts do not fit together.
    """
    of = np.repeat(np.arange(len(spec.workers)), [worker.count for worker in spec.workers])
    for n, worker in enumerate(spec.workers):
        _check(f"{name}: workers[{n}]", worker, spec)
    truth = ModelTruth(
        base=_models(spec, of, name),
        noise=np.array([worker.noise for worker in spec.workers])[of],
        availability=_availability(spec, traces, of),
        seed=spec.seed,
        cpu=_cpu(spec, traces, of),
    )
    joins = np.array([worker.joins_at for worker in spec.workers])[of]
    leaves = np.array([worker.leaves_at or spec.iterations for worker in spec.workers])[of]
    starts = sorted({0, *joins.tolist(), *leaves.tolist()} & set(range(spec.iterations)))
    spans = []
    for start, end in zip(starts, [*starts[1:], spec.iterations], strict=True):
        members = np.flatnonzero((joins <= start) & (leaves > start))
        if not members.size:
            raise ConfigurationError(f"{name}: iteration {start} has no workers; let one join earlier or leave later")
        bounds = _bounds(spec, of[members])
        try:
            Problem(spec.global_batch_size, bounds)
        except ConfigurationError as error:
            raise ConfigurationError(f"{name}: iterations {start} to {end - 1}: {error}") from error
        everybody = members.size == of.size and start == 0
        job = Job(
            truth=truth if everybody else truth.select(members, start),
            global_batch_size=spec.global_batch_size,
            iterations=end - start,
            bounds=bounds,
            communication_s=spec.communication_s,
            message_s=spec.message_s,
        )
        spans.append(Span(start=start, members=members, job=job))
    return Cluster(workers=of.size, spans=tuple(spans), restart_s=spec.restart_s, description=spec)


def _check(where: str, worker: WorkerSpec, spec: ClusterSpec) -> None:
    told = [
        key
        for key, there in (
            ("speed_samples_per_s", worker.speed_samples_per_s is not None),
            ("time", worker.time is not None),
            ("profile", worker.profile is not None),
            ("a trace of speeds", worker.trace is not None and worker.trace.kind == "speed"),
        )
        if there
    ]
    if len(told) != 1:
        raise ConfigurationError(
            f"{where}: how fast it is, is told by {' and '.join(told) or 'nothing'}; give one of speed_samples_per_s, "
            "time, profile, or a trace of kind speed"
        )
    if worker.most_samples is not None and worker.most_samples < worker.least_samples:
        raise ConfigurationError(
            f"{where}: most_samples = {worker.most_samples} < least_samples = {worker.least_samples}; raise the cap"
        )
    if worker.joins_at >= (worker.leaves_at or spec.iterations):
        raise ConfigurationError(
            f"{where}: joins_at = {worker.joins_at} is not before leaves_at = {worker.leaves_at or spec.iterations} "
            "(the run's end if not given); it would never be there"
        )
    profile = worker.profile
    if profile is not None:
        if len(profile.sizes) != len(profile.times_s):
            raise ConfigurationError(
                f"{where}.profile: {len(profile.sizes)} sizes and {len(profile.times_s)} times_s; give as many"
            )
        if any(b <= a for a, b in zip(profile.sizes, profile.sizes[1:], strict=False)):
            raise ConfigurationError(f"{where}.profile: sizes = {profile.sizes} do not ascend; sort them")


def _models(spec: ClusterSpec, of: IntArray, name: str) -> AffineTimes | TableTimes:
    """Affine where all are; else a table of all sizes up to X for each worker."""
    flat, fixed, per_sample = [], [], []
    for worker in spec.workers:
        time = worker.time
        flat.append(time.flat_s if time else 0.0)
        fixed.append(time.fixed_s if time else 0.0)
        per_sample.append(time.per_sample_s if time else 1.0 / (worker.speed_samples_per_s or 1.0))
    affine = AffineTimes(np.array(flat)[of], np.array(fixed)[of], np.array(per_sample)[of])
    if not any(worker.profile for worker in spec.workers):
        return affine
    entries = of.size * (spec.global_batch_size + 1)
    if entries > MOST_TABLE:
        raise ConfigurationError(
            f"{name}: profiles of {of.size} workers for up to {spec.global_batch_size} samples need a table of "
            f"{entries} times, of at most {MOST_TABLE}; describe them by time = {{fixed_s, per_sample_s}}"
        )
    sizes = np.arange(spec.global_batch_size + 1)
    rows = []
    for n, worker in enumerate(spec.workers):
        line = np.maximum(flat[n], fixed[n] + per_sample[n] * sizes)
        rows.append(line if worker.profile is None else _interpolated(worker.profile, sizes))
    return TableTimes([rows[int(n)] for n in of])


def _interpolated(profile: ProfileSpec, sizes: IntArray) -> FloatArray:
    """Straight lines through the points, going on beyond the last; below the first its time a sample or more."""
    x, t = np.array(profile.sizes, dtype=float), np.maximum.accumulate(profile.times_s)
    within = np.interp(sizes, x, t)
    slope = (t[-1] - t[-2]) / (x[-1] - x[-2])
    return np.where(sizes > x[-1], t[-1] + slope * (sizes - x[-1]), within)


def _availability(spec: ClusterSpec, traces: dict[int, FloatArray], of: IntArray) -> FloatArray | None:
    """Traces and wandering, multiplied; None if there are none."""
    wander = np.array([worker.wander.spread if worker.wander else 0.0 for worker in spec.workers])[of]
    if not (wander.any() or traces):
        return None
    if wander.any():
        tau = np.array([worker.wander.correlation if worker.wander else 1.0 for worker in spec.workers])[of]
        courses = wandering(spec.iterations, wander, tau, seed=spec.seed)
    else:
        courses = np.ones((spec.iterations, of.size))
    for n, values in traces.items():
        courses[:, of == n] *= values[:, None]
    return courses


def _cpu(spec: ClusterSpec, traces: dict[int, FloatArray], of: IntArray) -> FloatArray | None:
    """What the workers sense: the availability of those with a trace of it, within (0, 1]."""
    sensing = {n: v for n, v in traces.items() if spec.workers[n].trace.kind != "speed"}  # type: ignore[union-attr]
    if not sensing:
        return None
    cpu = np.full((spec.iterations, of.size), np.nan)
    for n, values in sensing.items():
        cpu[:, of == n] = np.minimum(values, 1.0)[:, None]
    return cpu


def _bounds(spec: ClusterSpec, of: IntArray) -> Bounds:
    least = np.array([worker.least_samples for worker in spec.workers])
    most = np.array([worker.most_samples or spec.global_batch_size for worker in spec.workers])
    return Bounds(least[of], np.maximum(most, least)[of], spec.granularity)
