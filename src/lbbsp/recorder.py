"""Writes down what a rank did: its iterations, and on rank 0 the decisions."""

from __future__ import annotations

import math
import platform
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from msgspec.structs import replace

import lbbsp
from lbbsp.core.policy import Problem
from lbbsp.engine import Decision
from lbbsp.runtime import Settings
from lbbsp.telemetry import DecisionRecord, EventRecord, IterationRecord, JsonlSink, NullSink, RunRecord, Sink

__all__ = ["Recorder", "Step", "record_of"]


@dataclass(slots=True)
class Step:
    """One iteration on this rank while it is in work; times in seconds on the rank's own clock.

    Args:
        iteration: k, counted over all epochs.
        asked_s: when the batch was asked for.
        epoch: the epoch.
        size: x_i.
        total: samples over all ranks.
        input_s: how long the batch took to come.
        compute_s: local compute, NaN if not measured.
        wait_s: waits for others so far, before the gradients were ready.
        ready_s: when the last gradient was ready.
        reduced_s: when the last gradient was reduced over all ranks.
        ended_s: when the next boundary was reached.
        reported: whether the report is on its way.
        cpu: available CPU when the gradients were ready, fraction; NaN if unknown.
        memory: available memory, likewise.
    """

    iteration: int
    asked_s: float
    epoch: int = 0
    size: int = 0
    total: int = 0
    input_s: float = math.nan
    compute_s: float = math.nan
    wait_s: float = 0.0
    ready_s: float = math.nan
    reduced_s: float = math.nan
    ended_s: float = math.nan
    reported: bool = False
    cpu: float = math.nan
    memory: float = math.nan


class Recorder:
    """Turns steps and decisions into telemetry records of one rank; make it with `open`."""

    def __init__(self, sink: Sink | None, *, run: RunRecord | None, folder: Path | None) -> None:
        self._sink, self._run, self._folder = sink, run, folder
        self._started_s = time.perf_counter()

    @classmethod
    def open(
        cls,
        folder: str | Path | None,
        *,
        rank: int,
        problem: Problem,
        policy: str,
        settings: Settings,
        machine: dict[str, str],
        mode: str | None = None,
    ) -> Recorder:
        """A recorder that writes into ``folder``, or nowhere if it is None; the file is made by `begin`."""
        if folder is None:
            return cls(NullSink(), run=None, folder=None)
        run = RunRecord(
            run=Path(folder).resolve().name,
            version=lbbsp.__version__,
            rank=rank,
            workers=problem.workers,
            global_batch_size=problem.global_batch_size,
            policy=policy,
            lag=0,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            machine={"platform": platform.platform(), "python": platform.python_version(), **machine},
            mode=mode or ("observe" if settings.observe_only else "balanced"),
            settings={name: str(value) for name, value in asdict(settings).items()},
        )
        return cls(None, run=run, folder=Path(folder))

    def begin(self, *, lag: int) -> None:
        """The lag is known: start the file."""
        if self._sink is None and self._run is not None and self._folder is not None:
            self._sink = JsonlSink(self._folder, run=replace(self._run, lag=lag), append=True)

    def iteration(self, step: Step) -> None:
        """Write an iteration that has ended."""
        if self._sink is None:
            return
        waited_s = step.reduced_s - step.ready_s
        self._sink.write(
            IterationRecord(
                rank=self._run.rank if self._run else 0,
                iteration=step.iteration,
                epoch=step.epoch,
                size=step.size,
                total=step.total,
                compute_s=_number(step.compute_s),
                wait_s=_number(step.wait_s + waited_s),
                step_s=_number(step.ended_s - step.asked_s),
                input_s=_number(step.input_s),
                at_s=step.ended_s - self._started_s,
                cpu=_number(step.cpu),
                memory=_number(step.memory),
            )
        )

    def decision(self, decision: Decision) -> None:
        """Write a decision, on rank 0 (all ranks decide alike)."""
        if self._sink is None or self._run is None or self._run.rank != 0:
            return
        self._sink.write(record_of(decision))

    def event(self, name: str, *, iteration: int, detail: str) -> None:
        """Write something that happened."""
        if self._sink is not None:
            at_s = time.perf_counter() - self._started_s
            rank = self._run.rank if self._run else 0
            self._sink.write(EventRecord(name=name, rank=rank, iteration=iteration, detail=detail, at_s=at_s))

    def close(self) -> None:
        """Close the file."""
        if self._sink is not None:
            self._sink.close()


def record_of(decision: Decision) -> DecisionRecord:
    """A decision as it is written."""
    allocation = decision.allocation
    return DecisionRecord(
        iteration=allocation.iteration,
        decided_at=decision.decided_at,
        sizes=allocation.sizes.tolist(),
        reason=allocation.reason.value,
        detail=allocation.detail,
        forecast_samples_per_s=[_number(v) for v in decision.forecast.tolist()],
        spread_samples_per_s=[_number(v) for v in decision.spread.tolist()],
        forecast_error=[_number(v) for v in decision.forecast_error.tolist()],
        expected_s=_number(decision.expected_s),
        expected_before_s=_number(decision.expected_before_s),
        moved=decision.moved,
        fallbacks=decision.fallbacks,
        report_every=decision.report_every,
        proposed=None if decision.proposed is None else np.asarray(decision.proposed).tolist(),
        proposed_s=_number(decision.proposed_s),
    )


def _number(value: float) -> float | None:
    """A number for JSON: null where it was not measured."""
    return value if math.isfinite(value) else None
