"""Recorded runs as clusters, and how the simulation agrees with them."""

from __future__ import annotations

import numpy as np
import pytest

from lbbsp.core.policy import Equal, Proportional
from lbbsp.errors import TelemetryError
from lbbsp.sim.bsp import SpeedTruth, simulate_bsp
from lbbsp.sim.replay import Agreement, agreement, recorded
from lbbsp.sim.schemes import Asp, Bsp, Oracle
from lbbsp.telemetry import IterationRecord, Run, RunRecord


def run_record(workers: int = 2, mode: str = "plain", x: int = 40) -> RunRecord:
    return RunRecord(
        run="r",
        version="0",
        rank=0,
        workers=workers,
        global_batch_size=x,
        policy="auto",
        lag=1,
        started_at="",
        mode=mode,
    )


def iteration(rank: int, k: int, size: int, compute_s: float | None, *, step_s: float = 9.0) -> IterationRecord:
    return IterationRecord(
        rank=rank, iteration=k, epoch=0, size=size, total=40, compute_s=compute_s, wait_s=None, step_s=step_s,
        input_s=None, at_s=None,
    )  # fmt: skip


def played(speeds: np.ndarray, policy: Equal | Proportional, common_s: float = 0.25, mode: str = "plain") -> Run:
    """What a run with these speeds would have recorded, its first iteration five times as slow."""
    k, w = speeds.shape
    outcome = simulate_bsp(SpeedTruth(speeds), policy, global_batch_size=40, iterations=k)
    records = [
        iteration(i, n, int(outcome.sizes[n, i]), float(outcome.compute_s[n, i]) * (5 if n == 0 else 1),
                  step_s=float(outcome.iteration_s[n]) * (5 if n == 0 else 1) + common_s)
        for i in range(w) for n in range(k)
    ]  # fmt: skip
    return Run.of([run_record(w, mode), *records])


def test_a_replay_gives_the_recorded_times_back() -> None:
    speeds = np.exp(np.random.default_rng(0).normal(3, 0.3, (30, 2)))
    replay = recorded(played(speeds, Equal()))
    assert replay.iterations == 29
    assert replay.left_out == 1
    assert replay.common_s == pytest.approx(0.25)
    run = Bsp().run(replay.job())
    assert np.diff(run.update_s, prepend=0) == pytest.approx(replay.step_s)
    assert agreement(replay, replay, Equal()).error == pytest.approx(0, abs=1e-12)


def test_the_balanced_run_is_foretold_from_the_plain_one() -> None:
    speeds = np.tile([30.0, 10.0], (20, 1))
    plain = recorded(played(speeds, Equal()))
    balanced = recorded(played(speeds, Proportional(), mode="balanced"))
    found = agreement(plain, balanced, Proportional())
    assert found.measured_s == pytest.approx(1.25)
    assert found.error == pytest.approx(0, abs=1e-9)
    assert Agreement(measured_s=2.0, simulated_s=2.2).error == pytest.approx(0.1)
    assert Oracle().run(plain.job()).batch_s == pytest.approx(1.25)
    assert Asp().run(plain.job()).samples >= plain.iterations * 40


def test_iterations_that_were_not_full_or_not_measured_are_left_out() -> None:
    records = [iteration(rank, k, 20, 1.0) for rank in (0, 1) for k in range(6)]
    records[2] = iteration(0, 2, 10, 1.0)  # a short one
    records[3] = iteration(0, 3, 20, None)
    records[4] = iteration(0, 4, 20, 1.0, step_s=0.0)
    del records[11]  # rank 1 is missing in the last
    replay = recorded(Run.of([run_record(), *records]))
    assert replay.iterations == 1
    assert replay.left_out == 5


def test_a_repeated_iteration_counts_as_last_recorded() -> None:
    records = [iteration(rank, k, 20, 1.0) for rank in (0, 1) for k in range(3)]
    records += [iteration(rank, 2, 20, 4.0) for rank in (0, 1)]
    assert recorded(Run.of([run_record(), *records])).compute_s[-1].tolist() == [4.0, 4.0]


def test_an_idle_worker_keeps_its_speed() -> None:
    records = [iteration(0, k, 20 if k < 3 else 40, 1.0) for k in range(5)]
    records += [iteration(1, k, 20 if k < 3 else 0, 2.0) for k in range(5)]
    truth = recorded(Run.of([run_record(), *records])).truth
    assert truth.times_s(3, np.array([0, 10])).tolist() == [0.0, 1.0]


def test_what_cannot_be_replayed_is_refused() -> None:
    with pytest.raises(TelemetryError, match="0 of 1 iterations are full"):
        recorded(Run.of([run_record(), iteration(0, 0, 20, 1.0), iteration(1, 0, 20, 1.0)]))
    with pytest.raises(TelemetryError, match=r"\[2, 3\] workers in turn"):
        recorded(Run.of([run_record(), run_record(3), iteration(0, 0, 20, 1.0)]))
    two = recorded(played(np.full((9, 2), 5.0), Equal()))
    three = recorded(played(np.full((9, 3), 5.0), Equal()))
    with pytest.raises(TelemetryError, match=r"2 workers .* against 3"):
        agreement(two, three, Equal())
    with pytest.raises(TelemetryError, match="record more than 8"):
        agreement(two, two, Equal(), adapting=8)
