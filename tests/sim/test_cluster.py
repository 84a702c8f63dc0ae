"""Cluster files: what they build, and that a broken one is refused with file, key and remedy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lbbsp.errors import ConfigurationError
from lbbsp.sim.cluster import cluster_of, load_cluster
from lbbsp.sim.schemes import Bsp, Oracle, resolve_scheme
from lbbsp.sim.truth import wandering

HEAD = "global_batch_size = 40\niterations = 20\n"
TWO = HEAD + "[[workers]]\nspeed_samples_per_s = 30.0\n[[workers]]\nspeed_samples_per_s = 10.0\n"


def test_a_cluster_of_two() -> None:
    cluster = cluster_of(TWO)
    assert cluster.workers == 2
    assert cluster.run(Bsp()).batch_s == pytest.approx(2.0)
    assert cluster.run(Oracle()).batch_s == pytest.approx(1.0)


def test_a_file_and_the_trace_beside_it(tmp_path: Path) -> None:
    (tmp_path / "use.csv").write_text("t,cpu\n0,50\n1,0\n")
    path = tmp_path / "cluster.toml"
    path.write_text(
        TWO + '[workers.trace]\nkind = "cpu_percent"\nfile = "use.csv"\ncolumn = "cpu"\nhold = 5\nrepeat = true\n'
    )
    cluster = load_cluster(path)
    truth, sizes = cluster.spans[0].job.truth, np.array([20, 20])
    assert [truth.times_s(k, sizes)[1] for k in (0, 4, 5, 9, 10)] == pytest.approx([4.0, 4.0, 2.0, 2.0, 4.0])
    assert truth.times_s(0, sizes)[0] == pytest.approx(20 / 30)
    cpu, memory = truth.sensed(0)  # type: ignore[attr-defined]
    assert cpu.tolist()[1] == 0.5
    assert np.isnan([cpu[0], memory[0]]).all()
    assert load_cluster(path, iterations=7).iterations == 7


def test_time_models_profiles_caps_and_noise() -> None:
    cluster = cluster_of(
        HEAD
        + "seed = 3\n[[workers]]\ntime = {flat_s = 0.5, fixed_s = 0.1, per_sample_s = 0.01}\nmost_samples = 30\n"
        + "[[workers]]\nprofile = {sizes = [10, 20], times_s = [1.0, 3.0]}\n"
    )
    times = cluster.spans[0].job.truth.models(0)
    assert times.time_s(np.array([10, 5])).tolist() == pytest.approx([0.5, 1.0])
    assert times.time_s(np.array([60, 15])).tolist() == pytest.approx([0.5, 2.0])  # X = 40 ends the table
    assert times.time_s(np.array([40, 40])).tolist() == pytest.approx([0.5, 7.0])
    sizes = cluster.run(Oracle()).gradients.size.reshape(20, 2)
    assert sizes[0].tolist() == [30, 10]
    noisy = cluster_of(TWO.replace("= 10.0", "= 10.0\nnoise = 0.2")).spans[0].job.truth
    times_s = np.array([noisy.times_s(k, np.array([10, 10])) for k in range(20)])
    assert np.ptp(times_s[:, 0]) == 0
    assert 0.05 < np.log(times_s[:, 1]).std() < 0.4
    assert noisy.times_s(5, np.array([10, 10])).tolist() == times_s[5].tolist()


def test_wandering_speeds_are_seeded() -> None:
    text = HEAD + "[[workers]]\ncount = 3\nspeed_samples_per_s = 1.0\nwander = {spread = 0.3, correlation = 5.0}\n"
    first, again, other = (cluster_of(text + seed).run(Bsp()).total_s for seed in ("", "", "\n"))
    assert first == again == other
    assert cluster_of("seed = 1\n" + text).run(Bsp()).total_s != first


def test_wandering_has_its_spread_and_correlation() -> None:
    u = np.log(wandering(40_000, [0.1, 0.4], [3.0, 20.0], seed=0))
    assert u.std(axis=0) == pytest.approx([0.1, 0.4], rel=0.1)
    lagged = [np.corrcoef(u[:-t, i], u[t:, i])[0, 1] for i, t in ((0, 3), (1, 20))]
    assert lagged == pytest.approx([np.exp(-1)] * 2, abs=0.06)


@pytest.mark.parametrize("scheme", ["bsp", "lb-bsp/auto", "asp", "flexrr", "oracle", "backup"])
def test_joins_and_leaves(scheme: str) -> None:
    """20 samples/s, then 40, then 30: a restart between costs what is said."""
    text = (
        "restart_s = 5.0\n"
        + HEAD
        + "[[workers]]\nspeed_samples_per_s = 10.0\nleaves_at = 15\n"
        + "[[workers]]\ncount = 2\nspeed_samples_per_s = 10.0\n"
        + "[[workers]]\nspeed_samples_per_s = 10.0\njoins_at = 5\n"
    )
    cluster = cluster_of(text)
    assert [span.members.tolist() for span in cluster.spans] == [[0, 1, 2], [0, 1, 2, 3], [1, 2, 3]]
    run = cluster.run(resolve_scheme(scheme))
    g = run.gradients
    assert (np.diff(run.update_s) >= 0).all()
    assert (g.read <= g.update).all()
    assert (np.diff(g.update) >= 0).all()
    assert g.update[-1] == run.update_s.size - 1
    assert run.samples >= 20 * 40
    if scheme not in {"backup", "asp"}:
        assert 0 in g.worker[:5]
        assert 3 in g.worker[-5:]
        assert 0 not in g.worker[-5:]
    if scheme == "bsp":
        assert run.total_s == pytest.approx(5 * 1.4 + 10 * 1.0 + 5 * 1.4 + 10.0)


BROKEN = {
    "not TOML": (TWO + "x = = 1\n", "no valid TOML: .*line 7.*correct that line"),
    "unknown key": (TWO.replace("speed_samples", "sped_samples", 1), r"workers\[0\]: .*sped_samples_per_s.*remove it"),
    "unknown key on top": ("iteration = 3\n" + TWO, "the top level: .*unknown field `iteration`; remove it"),
    "missing key": (TWO.replace("iterations = 20\n", ""), "missing required field `iterations`; add it"),
    "negative speed": (TWO.replace("30.0", "-30.0"), r"workers\[0\].speed_samples_per_s = -30.0: .*> 0.*give such"),
    "NaN speed": (TWO.replace("30.0", "nan"), r"workers\[0\].speed_samples_per_s = nan: .*> 0.*give such"),
    "infinite noise": (TWO + "noise = inf\n", r"workers\[1\].noise = inf: .*<= 1.*give such"),
    "text for a number": (TWO.replace("30.0", "'fast'"), r"workers\[0\].speed_samples_per_s = 'fast': Expected `float"),
    "no workers": (HEAD + "workers = []\n", "workers: .*length >= 1; give at least"),
    "no speed": (HEAD + "[[workers]]\n", r"workers\[0\]: how fast it is, is told by nothing; give one of"),
    "two speeds": (TWO + "time = {per_sample_s = 1.0}\n", r"workers\[1\].*speed_samples_per_s and time; give one"),
    "trace too short": (
        TWO + 'trace = {kind = "availability", values = [1.0, 0.5], hold = 4}\n',
        r"workers\[1\].trace: 2 values, each held for 4 iterations, are 8 of 20.*repeat = true",
    ),
    "NaN in a trace": (
        TWO + 'trace = {kind = "availability", values = [1.0, nan]}\n',
        r"workers\[1\].trace: value 1 is nan: a availability must be positive and finite; correct",
    ),
    "more than all CPU": (
        TWO + 'trace = {kind = "cpu_percent", values = [101.0]}\n',
        r"value 0 is 101.0: a cpu_percent must be 0 to 100",
    ),
    "empty trace": (TWO + 'trace = {kind = "availability", values = []}\n', "the trace is empty"),
    "no trace": (TWO + 'trace = {kind = "availability"}\n', "either values, or file and column"),
    "trace of what": (
        TWO + 'trace = {kind = "cpu", values = [1.0]}\n',
        r"workers\[1\].trace.kind = 'cpu': Invalid enum",
    ),
    "no such file": (
        TWO + 'trace = {kind = "availability", file = "no.csv", column = "a"}\n',
        "no.csv cannot be read.*looked for beside",
    ),
    "cap below the minimum": (
        TWO + "least_samples = 9\nmost_samples = 5\n",
        r"workers\[1\]: most_samples = 5 < least_samples = 9; raise",
    ),
    "caps below the batch": (
        TWO.replace("30.0", "30.0\nmost_samples = 8") + "most_samples = 8\n",
        "iterations 0 to 19: global batch 40 > 16.*raise the bounds",
    ),
    "nobody there": (
        TWO.replace("10.0", "10.0\njoins_at = 5").replace("30.0", "30.0\njoins_at = 5"),
        "iteration 0 has",
    ),
    "leaves before it joins": (TWO + "joins_at = 9\nleaves_at = 9\n", r"workers\[1\]: joins_at = 9 is not before"),
    "sizes and times": (
        HEAD + "[[workers]]\nprofile = {sizes = [1, 2, 3], times_s = [1.0, 2.0]}\n",
        r"workers\[0\].profile: 3 sizes and 2 times_s; give as many",
    ),
    "unsorted sizes": (
        HEAD + "[[workers]]\nprofile = {sizes = [2, 1], times_s = [1.0, 2.0]}\n",
        r"workers\[0\].profile: sizes = \[2, 1\] do not ascend; sort",
    ),
    "granularity": ("granularity = 3\n" + TWO, "40 is not divisible by the granularity 3; take 39 or 42"),
    "a run too long": (
        TWO.replace("= 20", "= 200000000"),
        "400000000 worker iterations.*lower iterations to 100000000",
    ),
    "a repeated trace of a run too long": (
        TWO.replace("= 20", "= 200000000000") + 'trace = {kind = "availability", values = [1.0], repeat = true}\n',
        "lower iterations to 100000000",
    ),
    "a table too large": (
        (HEAD + "[[workers]]\ncount = 100000\nprofile = {sizes = [1, 2], times_s = [1.0, 2.0]}\n").replace(
            "40", "100000"
        ),
        "need a table of",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused(what: str) -> None:
    text, says = BROKEN[what]
    with pytest.raises(ConfigurationError, match=f"(?s)^cluster.*{says}"):
        cluster_of(text)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("t,cpu\n0,10\n1,x\n", "line 3, column cpu: 'x' is no number; correct it"),
        ("t,cpu\n0\n", "line 2, column cpu: None is no number"),
        ("t,load\n0,10\n", "has no column 'cpu'; choose one of t, load"),
    ],
)
def test_a_broken_trace_file_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "use.csv").write_text(content)
    text = TWO + 'trace = {kind = "cpu_percent", file = "use.csv", column = "cpu"}\n'
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=says):
        load_cluster(tmp_path / "c.toml")
    (tmp_path / "c.toml").write_text(text.replace(', column = "cpu"', ""))
    with pytest.raises(ConfigurationError, match="name its column too"):
        load_cluster(tmp_path / "c.toml")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml: cannot be read"):
        load_cluster(tmp_path / "none.toml")


def test_the_example_in_the_documentation() -> None:
    cluster = load_cluster(Path(__file__).parents[2] / "examples" / "cluster.toml", iterations=450)
    assert [span.start for span in cluster.spans] == [0, 400]
    assert cluster.workers == 9
    assert cluster.run(resolve_scheme("lb-bsp/auto")).batch_s < cluster.run(Bsp()).batch_s
