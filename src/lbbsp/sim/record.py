"""A simulated run on record, in the schema of real ones: readable by everything that reads those."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import lbbsp
from lbbsp.engine import Decision
from lbbsp.recorder import record_of
from lbbsp.sim.bsp import Outcome
from lbbsp.sim.schemes import Job
from lbbsp.telemetry import IterationRecord, JsonlSink, RunRecord

__all__ = ["record"]


def record(
    folder: str | Path, job: Job, outcome: Outcome, decisions: Sequence[Decision], *, policy: str, lag: int = 1
) -> None:
    """Write one file a worker into ``folder``, the decisions into worker 0's.

    A wait is what a worker's compute lacks to the iteration's time; ``at_s`` is simulated time.

    Args:
        folder: made if need be; should be empty.
        job: what was simulated.
        outcome: what came of it.
        decisions: as `simulate_bsp` handed them to ``on_decision``.
        policy: its name.
        lag: L.
    """
    at_s = np.cumsum(outcome.iteration_s).tolist()
    total = job.global_batch_size
    for rank in range(job.workers):
        run = RunRecord(
            run=Path(folder).resolve().name,
            version=lbbsp.__version__,
            rank=rank,
            workers=job.workers,
            global_batch_size=total,
            policy=policy,
            lag=lag,
            started_at="1970-01-01T00:00:00+00:00",
            machine={"platform": "simulated"},
        )
        sink = JsonlSink(Path(folder), run=run)
        try:
            rows = zip(outcome.sizes[:, rank].tolist(), outcome.compute_s[:, rank].tolist(), strict=True)
            for k, (size, compute_s) in enumerate(rows):
                step_s = float(outcome.iteration_s[k])
                sink.write(
                    IterationRecord(
                        rank=rank,
                        iteration=k,
                        epoch=0,
                        size=size,
                        total=total,
                        compute_s=compute_s,
                        wait_s=step_s - compute_s,
                        step_s=step_s,
                        input_s=0.0,
                        at_s=at_s[k],
                    )
                )
                if rank == 0 and k < len(decisions):
                    sink.write(record_of(decisions[k]))
        finally:
            sink.close()
