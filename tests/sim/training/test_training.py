"""Training in virtual time: gradients, the order of updates, and what staleness costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lbbsp.core.order import global_order
from lbbsp.errors import ConfigurationError
from lbbsp.sim.bsp import SpeedTruth
from lbbsp.sim.schemes import Asp, Bsp, Gradients, Job, Ssp, Timeline, resolve_scheme
from lbbsp.sim.training import LinearTask, MlpTask, Split, Task, digits, libsvm, train
from lbbsp.sim.truth import wandering


def split(classes: int = 2, n: int = 60) -> Split:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, n).astype(float)
    return Split.of("toy", rng.standard_normal((n, 5)) + y[:, None], 2 * y - 1 if classes == 2 else y)


def job(iterations: int = 60, x: int = 256) -> Job:
    speeds = np.array([100.0, 100, 60, 20]) * wandering(iterations, np.full(4, 0.2), 10.0, seed=0)
    return Job(truth=SpeedTruth(speeds), global_batch_size=x, iterations=iterations)


class Quadratic:
    """``w^2 / 2`` whatever the sample: the gradient is w, so the course can be worked out by hand."""

    name, length = "quadratic", 10

    def start(self, seed: int) -> np.ndarray:
        return np.ones(1)

    def gradient(self, parameters: np.ndarray, index: np.ndarray) -> np.ndarray:
        return parameters

    def accuracy(self, parameters: np.ndarray) -> float:
        return 0.0

    def loss(self, parameters: np.ndarray) -> float:
        return float(parameters[0])


@pytest.mark.parametrize(
    "task",
    [LinearTask(split=split()), LinearTask(split=split(), kind="svm", decay=0.1), MlpTask(split=split(3), hidden=4)],
    ids=lambda task: task.name,
)
def test_gradients_are_those_of_the_loss(task: LinearTask | MlpTask) -> None:
    whole = Split(name="", x=task.split.x, y=task.split.y, x_held=task.split.x, y_held=task.split.y)
    same = type(task)(**{**{f: getattr(task, f) for f in task.__dataclass_fields__}, "split": whole})
    w = np.random.default_rng(1).standard_normal(same.start(0).size) * 0.3
    found = same.gradient(w, np.arange(same.length))

    def objective(at: np.ndarray) -> float:
        decay = same.decay if isinstance(same, LinearTask) else 0.0
        return same.loss(at) + decay / 2 * float(at @ at)

    steps = 1e-5 * np.eye(w.size)
    expected = [(objective(w + s) - objective(w - s)) / 2e-5 for s in steps]
    assert found == pytest.approx(np.array(expected), abs=1e-6)
    assert 0 <= same.accuracy(w) <= 1


def test_parts_of_a_batch_make_up_its_gradient() -> None:
    task = MlpTask(split=digits())
    w, index = task.start(0), np.arange(90)
    parts = [(50, index[:50]), (25, index[50:75]), (15, index[75:])]
    assert sum(n / 90 * task.gradient(w, part) for n, part in parts) == pytest.approx(
        task.gradient(w, index), abs=1e-14
    )


def test_stale_gradients_are_of_the_version_that_was_read() -> None:
    """Half-batch updates; rate 0.5: w = 1, .75 (g 1), .5 (g 1, stale), .3125 (g .75, stale)."""
    gradients = Gradients(
        worker=np.array([0, 1, 0]), size=np.array([2, 2, 2]), read=np.array([0, 0, 1]), update=np.array([0, 1, 2])
    )
    line = Timeline(
        scheme="by hand",
        update_s=np.array([1.0, 2.0, 3.0]),
        samples=6,
        global_batch_size=4,
        list_gradients=lambda: gradients,
    )
    curve = train(line, Quadratic(), rate=0.5)
    assert curve.parameters.tolist() == [0.3125]
    assert curve.updates.tolist() == [1.0]
    assert curve.loss.tolist() == [0.5]
    assert curve.at_s.tolist() == [2.0]
    assert curve.updates_to(0.5) == 1.0
    assert curve.seconds_to(0.5) == 2.0
    assert curve.updates_to(0.4) is None
    assert curve.seconds_to(0.4) is None


def test_a_velocity_decays_alike_in_whole_and_half_updates() -> None:
    """With a constant gradient both end in the same velocity, gradient / (1 - momentum)."""

    class Slope(Quadratic):
        def gradient(self, parameters: np.ndarray, index: np.ndarray) -> np.ndarray:
            return np.ones(1)

    one = Job(truth=SpeedTruth([[1.0]] * 200), global_batch_size=8, iterations=200)
    two = Job(truth=SpeedTruth([[1.0, 1.0]] * 200), global_batch_size=8, iterations=200)
    last = [np.diff(train(run, Slope(), rate=0.1, momentum=0.5).loss)[-1] for run in (Bsp().run(one), Asp().run(two))]
    assert last == pytest.approx([-0.2, -0.2])


def test_bsp_is_sgd_with_momentum_on_the_global_batch() -> None:
    task = MlpTask(split=digits())
    curve = train(Bsp().run(job(12)), task, rate=0.2, momentum=0.9, seed=3)
    w, v, stream = (
        task.start(3),
        task.start(3) * 0.0,
        np.concatenate([global_order(task.length, seed=3, epoch=e) for e in (0, 1, 2)]),
    )
    for k in range(12):
        v = 0.9 * v + task.gradient(w, stream[256 * k : 256 * (k + 1)])
        w = w - 0.2 * v
    assert curve.parameters == pytest.approx(w, abs=1e-12)


@pytest.mark.parametrize("scheme", ["lb-bsp/auto", "static", "oracle", "backup-1", "flexrr"])
def test_what_keeps_the_mathematics_of_bsp_has_its_curve(scheme: str) -> None:
    task, bsp = MlpTask(split=digits()), train(Bsp().run(job()), MlpTask(split=digits()), rate=0.2, momentum=0.9)
    curve = train(resolve_scheme(scheme).run(job()), task, rate=0.2, momentum=0.9)
    assert np.abs(curve.loss - bsp.loss).max() < 1e-6
    assert curve.updates_to(0.3) == bsp.updates_to(0.3)
    assert curve.updates_to_accuracy(0.9) == bsp.updates_to_accuracy(0.9) is not None
    assert curve.updates_to_accuracy(1.1) is None
    seconds, bsp_seconds = curve.seconds_to(0.3), bsp.seconds_to(0.3)
    assert seconds is not None
    assert bsp_seconds is not None
    assert seconds < bsp_seconds


def test_stale_schemes_need_more_updates() -> None:
    task = MlpTask(split=digits())
    needed = [
        train(scheme.run(job()), task, rate=0.2, momentum=0.9).updates_to(0.2) or np.inf
        for scheme in (Bsp(), Ssp(staleness=3), Asp())
    ]
    assert needed[0] < needed[1] < needed[2]


def test_training_repeats_bit_for_bit() -> None:
    task: Task = LinearTask(split=split())
    first, second = (train(Asp().run(job(20, 20)), task, rate=0.5, seed=1) for _ in range(2))
    assert first.parameters.tobytes() == second.parameters.tobytes()


def test_a_rate_too_large_diverges_quietly() -> None:
    curve = train(Bsp().run(job(300, 40)), LinearTask(split=split(), kind="svm"), rate=1e6)
    assert curve.updates_to(1e-9) is None


def test_a_file_in_libsvm_format(tmp_path: Path) -> None:
    path = tmp_path / "toy.libsvm"
    path.write_text("".join(f"{'+1' if n % 2 else '-1'} 1:{n} 3:1\n" for n in range(1, 21)))
    data = libsvm(path)
    assert data.name == "toy"
    assert (data.x.shape, data.x_held.shape) == ((16, 4), (4, 4))
    assert set(data.y.tolist()) == {-1.0, 1.0}
    curve = train(Bsp().run(job(10, 8)), LinearTask(split=data), rate=0.01)
    assert np.isfinite(curve.loss).all()
    path.write_text("1 1:1\n2 1:1\n3 1:1\n")
    with pytest.raises(ConfigurationError, match="has 3 classes"):
        libsvm(path)
    path.write_text("no libsvm\n")
    with pytest.raises(ConfigurationError, match=r"cannot be read as libsvm.*give a file"):
        libsvm(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        libsvm(tmp_path / "none")


@pytest.mark.parametrize(("options", "says"), [({"rate": 0.0}, "rate=0"), ({"momentum": 1.0}, "momentum=1")])
def test_bad_options(options: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        train(Bsp().run(job(1)), Quadratic(), **{"rate": 1.0, **options})  # type: ignore[arg-type]
