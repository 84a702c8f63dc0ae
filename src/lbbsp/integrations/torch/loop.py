"""The training loop as one rank sees it: boundary, batch, report, iteration after iteration."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lbbsp.core.types import FloatArray
from lbbsp.core.weights import mean_weight, share
from lbbsp.errors import ConfigurationError
from lbbsp.integrations.torch.memory import MemoryDesk
from lbbsp.integrations.torch.memory.failure import InWork
from lbbsp.integrations.torch.timing import Stopwatch
from lbbsp.recorder import Recorder, Step
from lbbsp.runtime import Runtime
from lbbsp.telemetry.sensors import Sensors

__all__ = ["Batch", "Loop"]


@dataclass(slots=True)
class Batch:
    """The batch in work on this rank.

    Args:
        step: k, counted over all epochs.
        size: x_i, samples that count.
        processed: samples that are run; 1 or more where ``size`` is 0.
        total: samples of the global batch.
        weighs: waits for what all ranks' batches weigh, where the script weighs them by something else than
            samples; shape ``(W, 1)``.
        counting: of ``size``, the samples in the piece in work, where the batch is split.
        at_once: of ``processed`` the same.
    """

    step: int
    size: int
    processed: int
    total: int
    weighs: Callable[[], FloatArray] | None = None
    weights: FloatArray | None = None
    counting: int | None = None
    at_once: int | None = None

    @property
    def counts_now(self) -> int:
        """Samples that count in what is in work: the batch or a piece of it."""
        return self.size if self.counting is None else self.counting

    @property
    def runs_now(self) -> int:
        """Samples whose activations are held at once."""
        return self.processed if self.at_once is None else self.at_once


class Loop:
    """Where this rank is, and what it measured; the loader and the gradients' hooks drive it.

    Args:
        rank: this rank.
        workers: W.
        stopwatch: of local compute.
        recorder: takes in iterations.
        sensors: of the machine's load.
        memory: what is done about this rank's memory.
        start_gather: starts gathering a row of numbers from all ranks; the answer waits for them.
        reports_itself: whether the gradients' hooks call `gradients_ready`, or the script `LoadBalancer.report`.
    """

    def __init__(
        self,
        *,
        rank: int,
        workers: int,
        stopwatch: Stopwatch,
        recorder: Recorder,
        sensors: Sensors,
        memory: MemoryDesk,
        start_gather: Callable[[list[float]], Callable[[], FloatArray]],
        reports_itself: bool,
    ) -> None:
        self.rank, self.workers = rank, workers
        self.stopwatch, self.recorder, self.sensors = stopwatch, recorder, sensors
        self.memory, self.reports_itself, self.start_gather = memory, reports_itself, start_gather
        self.runtime_or_none: Runtime | None = None
        self.next_step = 0
        self.batch: Batch | None = None
        self.step: Step | None = None
        self.active: object | None = None
        self.forwarded = False
        """A forward pass that needs gradients has run since the batch was handed out."""
        self._passes, self._passes_before = 0, 1  # backward passes that reduced gradients, this iteration and last
        self._carried = 0  # samples of earlier batches whose gradients only accumulate, in the current lap

    @property
    def runtime(self) -> Runtime:
        """The runtime, or ConfigurationError before the first loader."""
        if self.runtime_or_none is None:
            raise ConfigurationError("no data loader yet: call balancer.data_loader(dataset) first")
        return self.runtime_or_none

    # -- as the loader drives it -----------------------------------------------------------------------------

    def enter(self, source: object) -> None:
        """An epoch of ``source`` begins."""
        if self.active is not None and self.active is not source:
            raise ConfigurationError("another loader of this balancer is in the middle of an epoch: finish it first")
        self.active = source

    def leave(self, source: object) -> None:
        """It has ended."""
        if self.active is source:
            self.active = None

    def boundary(self) -> None:
        """All ranks meet: take in the reports of the iteration that ended, and decide."""
        if self.step is not None:
            self.step.ended_s = time.perf_counter()
            if not self.reports_itself and not self.step.reported:
                raise ConfigurationError(
                    "balancer.report() was not called in this iteration: without a DistributedDataParallel model, "
                    "call it after each backward pass, before your own gradient reduction (and make a loader for "
                    "evaluation with data_loader(..., evaluate=True))"
                )
            if self._passes:
                self._report_once()  # fewer backward passes than in the iteration before
                self._passes_before = self._passes
        self.runtime.boundary()
        if self.step is not None:
            self.recorder.iteration(self.step)
            accumulates = self.batch is not None and self.forwarded and not self.step.reported
            self._carried = self._carried + self.batch.processed if accumulates and self.batch else 0
            self.step = None

    def ask(self) -> None:
        """The batch is being asked for: local compute begins."""
        self.step = Step(iteration=self.next_step, asked_s=time.perf_counter())
        if not self._carried:  # an accumulating batch ends without a wait, so its lap goes on
            self.stopwatch.start()
        self.forwarded = False
        self.memory.begin(due=self.runtime.engine.due(self.next_step))
        self._passes = 0

    def hand_out(
        self,
        *,
        epoch: int,
        size: int,
        total: int,
        weighs: Callable[[], FloatArray] | None,
        processed: int | None = None,
    ) -> None:
        """This rank has its batch, of which ``processed`` samples are run (by default its size, or 1)."""
        self.batch = Batch(self.next_step, size, processed or max(size, 1), total, weighs)
        if self.step is not None:
            self.step.epoch, self.step.size, self.step.total = epoch, size, total
            self.step.input_s = time.perf_counter() - self.step.asked_s
        self.next_step += 1

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """An evaluation, perhaps between two batches of an epoch: nothing in it is measured or reported."""
        kept = self.batch, self.step, self.active
        self.step, self.active = None, None
        self.stopwatch.pause()
        try:
            yield
        finally:
            self.batch, self.step, self.active = kept
            self.stopwatch.resume()

    # -- as the gradients drive it ---------------------------------------------------------------------------

    def waited(self, seconds: float) -> None:
        """Take ``seconds`` of waiting for other ranks out of the local compute."""
        self.stopwatch.exclude(seconds)
        if self.step is not None:
            self.step.wait_s += seconds

    def forward_begins(self) -> None:
        """A forward pass that needs gradients."""
        self.forwarded = True
        if self._passes:
            self.stopwatch.resume()

    def gradients_ready(self) -> None:
        """A backward pass has made its last gradient; report after as many as the iteration before had."""
        if self.batch is None or self.step is None:
            return
        self._passes += 1
        self.stopwatch.pause()  # the reduction is waited for before another pass begins
        if self._passes >= self._passes_before:
            self._report_once()

    def _report_once(self) -> None:
        if self.batch is not None and self.step is not None and not self.step.reported:
            self._report(self.batch, self.step)

    def gradients_reduced(self) -> None:
        """The last gradient is reduced over all ranks."""
        if self.step is not None:
            self.step.reduced_s = time.perf_counter()

    def _report(self, batch: Batch, step: Step) -> None:
        lap = self.stopwatch.stop(batch.processed + self._carried)
        step.reported = True
        step.ready_s = time.perf_counter()
        step.compute_s = lap.seconds
        at_hand = self.sensors.latest
        step.cpu, step.memory = at_hand.cpu, at_hand.memory
        cap = self.memory.end(batch.runs_now)
        self.runtime.report(step.iteration, lap.size, lap.seconds, cpu=at_hand.cpu, memory=at_hand.memory, cap=cap)

    def in_work(self) -> InWork | None:
        """What fails if memory runs out now: only forward and backward passes need more for more samples."""
        step = self.step
        if step is None or step.reported or self.batch is None or self.batch.step != step.iteration:
            return None
        return InWork(self.batch.runs_now, step.iteration)

    # -- what the batch in work weighs -------------------------------------------------------------------------

    @property
    def weight(self) -> float:
        """``W x_i / X`` for the samples in work; 1 before the first batch."""
        return self.weight_of(self.batch)

    @property
    def share(self) -> float:
        """``x_i / X`` for the samples in work; 1 / W before the first batch."""
        if self.batch is None:
            return 1.0 / self.workers
        if self.batch.weighs is None:
            return share(self.batch.counts_now, self.batch.total)
        return self.weight_of(self.batch) / self.workers

    def weight_of(self, batch: Batch | None) -> float:
        """``W`` times what this rank's batch weighs over what all ranks' weigh."""
        if batch is None:
            return 1.0
        weights = self.weights_of(batch)
        if weights is None:
            return mean_weight(batch.counts_now, batch.total, self.workers)
        total = math.fsum(weights)
        return float(weights[self.rank]) * self.workers / total if total > 0 else 0.0

    def weights_of(self, batch: Batch) -> FloatArray | None:
        """What each rank's batch weighs, by the script's own measure; None where samples count.

        Raises:
            ConfigurationError: a weight is negative or not finite; on all ranks.
        """
        if batch.weights is None and batch.weighs is not None:
            started_s = time.perf_counter()
            weights = batch.weighs()[:, 0]
            self.waited(time.perf_counter() - started_s)
            wrong = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
            if wrong.size:
                raise ConfigurationError(
                    f"weight= gave {weights[wrong[0]]} on rank {wrong[0]}: must be a finite number of 0 or more"
                )
            batch.weights = weights
        return batch.weights
