"""Every scheme against what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbbsp.core.types import Bounds
from lbbsp.errors import ConfigurationError
from lbbsp.sim.bsp import SpeedTruth
from lbbsp.sim.schemes import Asp, BackupWorkers, Bsp, FlexRr, Job, Oracle, Ssp, Static, resolve_scheme

ALL = [
    "bsp",
    "lb-bsp/auto",
    "dbs",
    "omnilearn",
    "lbb",
    "static",
    "backup",
    "oracle",
    "asp",
    "ssp",
    "flexrr",
    "flexrr-2",
]


def steady(*speeds: float, iterations: int = 40, size: int = 40, **options: float) -> Job:
    truth = SpeedTruth(np.tile(speeds, (iterations, 1)))
    return Job(truth=truth, global_batch_size=size * len(speeds), iterations=iterations, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ALL)
@given(
    speeds=st.lists(st.floats(0.5, 50), min_size=2, max_size=5),
    extra=st.integers(0, 50),
    communication_s=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=15)
def test_timelines_are_sound(name: str, speeds: list[float], extra: int, communication_s: float) -> None:
    iterations, total = 6, 2 * len(speeds) + extra
    job = Job(
        truth=SpeedTruth([speeds] * iterations),
        global_batch_size=total,
        iterations=iterations,
        communication_s=communication_s,
        message_s=0.01,
    )
    run = resolve_scheme(name).run(job)
    assert iterations * total <= run.samples < (iterations + 1) * total
    assert (run.gradients.size > 0).all()
    assert (np.diff(run.gradients.update) >= 0).all()
    assert (np.diff(run.update_s) >= 0).all()
    assert (run.gradients.staleness >= 0).all()
    # no scheme computes faster than all workers together
    assert run.batch_s >= total / sum(speeds) * (1 - 1e-9)


def test_equal_workers_are_alike_under_every_scheme() -> None:
    job = steady(10.0, 10.0, 10.0)
    for name in ("bsp", "lb-bsp/auto", "static", "oracle", "asp", "ssp", "flexrr"):
        assert resolve_scheme(name).run(job).batch_s == pytest.approx(4.0), name


def test_asp_uses_all_speed_and_bsp_that_of_the_slowest() -> None:
    job = steady(40.1, 10.0, iterations=100)
    assert Bsp().run(job).batch_s == pytest.approx(4.0)
    run = Asp().run(job)
    assert run.batch_s == pytest.approx(80 / 50, rel=0.03)
    assert (run.gradients.worker == 0).sum() == pytest.approx(4 * (run.gradients.worker == 1).sum(), rel=0.06)
    # the slow worker misses the fast one's four updates meanwhile, the fast one's gradients at most one
    assert np.median(run.gradients.staleness[run.gradients.worker == 1][1:]) == 4
    assert run.gradients.staleness[run.gradients.worker == 0].max() == 1


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_ssp_bounds_how_far_ahead_a_worker_runs(staleness: int) -> None:
    run = Ssp(staleness=staleness).run(steady(40.0, 10.0, 20.0))
    counts = np.zeros(3, dtype=int)
    for worker in run.gradients.worker:
        counts[worker] += 1
        assert counts.max() - counts.min() <= staleness + 1


def test_ssp_is_between_bsp_and_asp_when_slowness_passes_around() -> None:
    """Each worker is slow in turn: slack hides that, a barrier does not."""
    speeds = np.full((60, 3), 30.0)
    for k in range(60):
        speeds[k, k % 3] = 10.0
    job = Job(truth=SpeedTruth(speeds), global_batch_size=90, iterations=60)
    bsp, ssp, asp = (scheme.run(job).batch_s for scheme in (Bsp(), Ssp(staleness=3), Asp()))
    assert bsp == pytest.approx(3.0)
    assert asp == pytest.approx(5 / 3, rel=0.05)
    assert asp <= ssp < 0.7 * bsp


def test_the_static_split_goes_stale() -> None:
    speeds = np.array([[40.0, 10.0]] * 20 + [[10.0, 40.0]] * 20)
    job = Job(truth=SpeedTruth(speeds), global_batch_size=50, iterations=40)
    run = Static(measured=1).run(job)
    assert run.gradients.size[2:4].tolist() == [40, 10]
    assert np.diff(run.update_s)[:18] == pytest.approx(1.0)
    assert np.diff(run.update_s)[20:] == pytest.approx(4.0)


def test_backups_drop_the_slowest_and_keep_the_batch() -> None:
    job = steady(10.0, 10.0, 10.0, 1.0, size=30)
    run = BackupWorkers(backups=1).run(job)
    assert run.batch_s == pytest.approx(4.0)  # 120 / 3 = 40 samples each
    assert 3 not in run.gradients.worker
    assert run.wasted == 40 * 40
    assert run.samples == 40 * 120


def test_backups_with_a_batch_that_does_not_divide() -> None:
    job = Job(truth=SpeedTruth([[3.0, 2.0, 1.0, 0.5]] * 5), global_batch_size=4, iterations=5)
    run = BackupWorkers(backups=1).run(job)  # 2 each, so two workers make up the batch
    assert run.samples == 20
    assert set(run.gradients.worker.tolist()) == {0, 1}
    assert run.batch_s == pytest.approx(1.0)


def test_reassignment_helps_the_slow_but_only_beyond_its_trigger() -> None:
    job = steady(40.0, 10.0, iterations=20, size=200)
    ideal = 400 / 50
    free = FlexRr().run(job).batch_s
    # 5 s alone, then 110 samples together at 50/s, then the last fifth, which is not handed over, at 10/s
    assert free == pytest.approx(5 + 110 / 50 + 40 / 10, rel=0.05)
    eager = FlexRr(trigger=0.01).run(job).batch_s
    assert ideal * (1 - 1e-9) <= eager < free
    mild = steady(10.0, 9.0, iterations=20, size=200)
    assert FlexRr().run(mild).batch_s == pytest.approx(Bsp().run(mild).batch_s)


def test_messages_make_reassignment_useless_for_short_iterations() -> None:
    slow_messages = steady(40.0, 10.0, iterations=20, size=200, message_s=30.0)
    assert FlexRr().run(slow_messages).batch_s == pytest.approx(20.0)


@pytest.mark.parametrize("scheme", [FlexRr(), Ssp(staleness=0)])
def test_a_barrier_makes_one_update_of_an_iteration(scheme: FlexRr | Ssp) -> None:
    run = scheme.run(steady(40.0, 10.0, 20.0, iterations=7))
    assert run.gradients.staleness.max() == 0
    assert run.update_s.size == 7
    assert run.gradients.update.tolist() == [k for k in range(7) for _ in range(3)]
    assert run.samples == 7 * 120


def test_the_oracle_follows_at_once() -> None:
    speeds = np.array([[40.0, 10.0], [10.0, 40.0]] * 10)
    run = Oracle().run(Job(truth=SpeedTruth(speeds), global_batch_size=50, iterations=20))
    assert run.batch_s == pytest.approx(1.0)


def test_idle_workers_hold_nobody_up() -> None:
    job = Job(
        truth=SpeedTruth([[10.0, 10.0, 0.1]] * 5),
        global_batch_size=2,
        iterations=5,
        bounds=Bounds(np.zeros(3, int), np.array([2, 2, 0])),
    )
    for scheme in (Asp(), Ssp(staleness=0), Bsp()):
        assert scheme.run(job).batch_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lbbsp", "choose asp, backup"),
        ("bsp-3", "choose asp"),
        ("lb-bsp/none", "choose one of auto"),
        ("backup-9", "between 1 and 1"),
        ("backup-0", "between 1 and 1"),
        ("static-0", "measured=0"),
    ],
)
def test_bad_names_are_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        resolve_scheme(name).run(steady(1.0, 1.0))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trigger": 0.0}, "trigger=0"),
        ({"then": 2.0}, "then=2"),
        ({"staleness": -1}, "staleness=-1"),
        ({"group": 0}, "group=0"),
    ],
)
def test_bad_rules_are_refused(options: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        FlexRr(**options)  # type: ignore[arg-type]


def test_backups_beyond_a_cap_are_refused() -> None:
    bounds = Bounds(np.array([1, 1, 1]), np.array([10, 10, 5]))
    job = Job(truth=SpeedTruth([[1.0, 1.0, 1.0]]), global_batch_size=12, iterations=1, bounds=bounds)
    with pytest.raises(ConfigurationError, match="worker 2 can take 5"):
        BackupWorkers(backups=1).run(job)


def test_bad_jobs_are_refused() -> None:
    truth = SpeedTruth([[1.0, 1.0]])
    for options, says in (({"iterations": 0}, "iterations=0"), ({"message_s": -1.0}, "message_s=-1.0")):
        with pytest.raises(ConfigurationError, match=says):
            Job(**{"truth": truth, "global_batch_size": 4, "iterations": 1, **options})  # type: ignore[arg-type]
