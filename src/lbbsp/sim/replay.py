"""A recorded run as a cluster: what would another way of sizing have brought to it?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbbsp.core.policy import Policy
from lbbsp.core.types import FloatArray, IntArray
from lbbsp.errors import TelemetryError
from lbbsp.sim.bsp import SpeedTruth, simulate_bsp
from lbbsp.sim.schemes import Job
from lbbsp.telemetry import IterationRecord, Run

__all__ = ["Agreement", "Recorded", "agreement", "recorded"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Recorded:
    """The full iterations of a recorded run, K of them.

    Args:
        truth: its speeds, v = x / t, held constant over an iteration whatever the batch: `SpeedTruth`.
        global_batch_size: X, samples.
        sizes: x_i^k as recorded, shape ``(K, W)``.
        compute_s: t_i^k as recorded, shape ``(K, W)``.
        step_s: the slowest rank's whole step as recorded, shape ``(K,)``.
        common_s: what a step takes beyond the slowest rank's compute: the median over the iterations.
        left_out: iterations that were short, incomplete or not measured.
        lag: L.
        mode: of the run.
    """

    truth: SpeedTruth
    global_batch_size: int
    sizes: IntArray
    compute_s: FloatArray
    step_s: FloatArray
    common_s: float
    left_out: int
    lag: int
    mode: str

    @property
    def iterations(self) -> int:
        """K."""
        return int(self.step_s.size)

    def job(self) -> Job:
        """The run as a job for any scheme."""
        return Job(
            truth=self.truth,
            global_batch_size=self.global_batch_size,
            iterations=self.iterations,
            communication_s=self.common_s,
        )


def recorded(run: Run, *, discard: int = 1) -> Recorded:
    """The run's full iterations, as far as they were measured.

    A worker that was idle (no samples) keeps the last speed that it showed.

    Args:
        run: as `lbbsp.telemetry.read_run` gives it.
        discard: first iterations to leave out: allocators, caches and compilers settle in them.

    Raises:
        TelemetryError: nothing usable is left, or the records are not of one number of workers.
    """
    sizes_of = {record.workers for record in run.runs}
    if len(sizes_of) > 1:
        raise TelemetryError(f"the run had {sorted(sizes_of)} workers in turn; replay the record of one start")
    workers, x = run.workers, run.record.global_batch_size
    rows: dict[int, dict[int, IterationRecord]] = {}
    for record in run.iterations:  # a restart repeats iterations: the later record counts
        rows.setdefault(record.iteration, {})[record.rank] = record
    numbers = sorted(rows)
    kept = [k for k in numbers[discard:] if _full(rows[k], workers, x)]
    speeds = np.full((len(kept), workers), math.nan)
    sizes, compute_s = np.zeros((len(kept), workers), dtype=np.int64), np.zeros((len(kept), workers))
    step_s = np.zeros(len(kept))
    for n, k in enumerate(kept):
        for rank, record in rows[k].items():
            sizes[n, rank], compute_s[n, rank] = record.size, record.compute_s or 0.0
            if record.size:
                speeds[n, rank] = record.size / compute_s[n, rank]
            elif n:
                speeds[n, rank] = speeds[n - 1, rank]
        step_s[n] = max(record.step_s or 0.0 for record in rows[k].values())
    if not kept or not np.isfinite(speeds).all():
        raise TelemetryError(
            f"{len(kept)} of {len(numbers)} iterations are full ones with all {workers} ranks' times, and each worker "
            "must have had samples in the first; record a longer run"
        )
    return Recorded(
        truth=SpeedTruth(speeds),
        global_batch_size=x,
        sizes=sizes,
        compute_s=compute_s,
        step_s=step_s,
        common_s=max(0.0, float(np.median(step_s - compute_s.max(axis=1)))),
        left_out=len(numbers) - len(kept),
        lag=run.record.lag,
        mode=run.record.mode,
    )


def _full(ranks: dict[int, IterationRecord], workers: int, x: int) -> bool:
    """Whether an iteration is a full batch, with a believable time from each rank that worked."""
    records = ranks.values()
    return (
        len(ranks) == workers
        and sum(record.size for record in records) == x
        and all(record.step_s for record in records)
        and all((record.compute_s or 0.0) > 0 for record in records if record.size)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How a simulation agrees with a measured run of the same job; times are medians, seconds an iteration.

    Args:
        measured_s: of the run.
        simulated_s: of the simulation.
    """

    measured_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        """Simulated over measured, less 1."""
        return self.simulated_s / self.measured_s - 1


def agreement(source: Recorded, target: Recorded, policy: Policy[Any], *, adapting: int = 4) -> Agreement:
    """Foretell ``target``'s iteration time from ``source``'s speeds alone, and compare with what was measured.

    ``source`` is a run of the same job on the same workers, for instance the plain one; the simulation sizes the
    batches by ``policy`` with the target's lag.  Where source is target and the policy that of the run, this says
    how well the replay reproduces a run.

    Args:
        source: where the speeds come from.
        target: what is foretold.
        policy: how the target was sized.
        adapting: first iterations left out on both sides, in which sizes were still being found.

    Raises:
        TelemetryError: the runs are of different jobs, or too short.
    """
    if (source.truth.workers, source.global_batch_size) != (target.truth.workers, target.global_batch_size):
        raise TelemetryError(
            f"{source.truth.workers} workers and a global batch of {source.global_batch_size} against "
            f"{target.truth.workers} and {target.global_batch_size}: compare runs of the same job"
        )
    if min(source.iterations, target.iterations) <= adapting:
        raise TelemetryError(
            f"{source.iterations} and {target.iterations} full iterations: record more than {adapting} of each"
        )
    outcome = simulate_bsp(
        source.truth,
        policy,
        global_batch_size=source.global_batch_size,
        iterations=source.iterations,
        lag=target.lag,
        communication_s=source.common_s,
    )
    return Agreement(
        measured_s=float(np.median(target.step_s[adapting:])),
        simulated_s=float(np.median(outcome.iteration_s[adapting:])),
    )
