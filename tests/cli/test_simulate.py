"""``lbbsp simulate``: its figures, and bad use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lbbsp.cli.app import run
from lbbsp.report import series_of
from lbbsp.sim.replay import recorded
from lbbsp.telemetry import read_run
from lbbsp.telemetry.schema import encode
from tests.sim.test_replay import iteration, run_record

CLUSTER = (
    "global_batch_size = 40\niterations = 20\nworkers = [{speed_samples_per_s = 30.0}, {speed_samples_per_s = 10.0}]\n"
)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    return path


def test_a_cluster(cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "figures.json"
    assert run(["simulate", str(cluster), "--json", str(figures)]) == 0
    written = json.loads(figures.read_text())
    assert (written["schema"], written["command"]) == (1, "simulate")
    by_name = {row["scheme"]: row for row in written["schemes"]}
    assert {"bsp", "lb-bsp/auto", "static", "backup-1", "asp", "ssp-3", "flexrr", "oracle"} == set(by_name)
    assert by_name["bsp"]["speedup"] == 1
    assert by_name["oracle"]["speedup"] == pytest.approx(2.0)
    assert 1.8 < by_name["lb-bsp/auto"]["speedup"] <= 2.0
    assert by_name["lb-bsp/auto"]["efficiency"] == pytest.approx(by_name["lb-bsp/auto"]["speedup"] / 2)
    assert by_name["lb-bsp/auto"]["moves"] >= 1
    assert by_name["backup-1"]["wasted_samples"] == 20 * 40
    assert "2.00x" in capsys.readouterr().out


def test_policies_and_schemes_of_ones_choice(cluster: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--policy", "proportional-last", "--policy", "equal", "--scheme", "ssp-2", "--iterations", "5"]
    assert run(["simulate", str(cluster), *options, "--json", str(figures)]) == 0
    rows = json.loads(figures.read_text())["schemes"]
    assert [row["scheme"] for row in rows] == ["bsp", "lb-bsp/proportional-last", "lb-bsp/equal", "ssp-2", "oracle"]
    assert rows[0]["total_s"] == pytest.approx(5 * 2.0)


def test_the_lag_is_that_of_the_file(cluster: Path, tmp_path: Path) -> None:
    totals = []
    for lag in (1, 4):
        cluster.write_text(f"lag = {lag}\n" + CLUSTER)
        figures = tmp_path / "figures.json"
        assert run(["simulate", str(cluster), "--scheme", "static", "--json", str(figures)]) == 0
        totals.append({row["scheme"]: row["total_s"] for row in json.loads(figures.read_text())["schemes"]})
    # three more iterations of 2 s instead of some 1 s
    assert totals[1]["lb-bsp/auto"] - totals[0]["lb-bsp/auto"] == pytest.approx(3.0, abs=0.2)
    assert totals[1]["static"] == totals[0]["static"]


def test_a_recorded_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        records = [iteration(rank, k, 20, 1.0 + rank, step_s=2.5) for k in range(8)]
        lines = [encode(run_record()), *map(encode, records)]
        (tmp_path / f"rank-{rank:05}.jsonl").write_bytes(b"".join(lines))
    figures = tmp_path / "figures.json"
    assert run(["simulate", str(tmp_path), "--json", str(figures)]) == 0
    written = json.loads(figures.read_text())
    assert written["schemes"][0]["batch_s"] == pytest.approx(2.5)
    assert written["schemes"][-1]["batch_s"] == pytest.approx(0.5 + 27 / 20)
    assert "7 full iterations of 2.5 s" in " ".join(capsys.readouterr().out.split())
    assert run(["simulate", str(tmp_path), "--iterations", "3"]) == 2
    assert "has no effect" in capsys.readouterr().err


def test_schemes_that_do_not_fit_are_left_out_with_the_reason(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device with a fixed cost cannot be helped sample by sample; a cap of 25 leaves no room for a backup."""
    text = CLUSTER.replace(
        "{speed_samples_per_s = 10.0}", "{time = {fixed_s = 1.0, per_sample_s = 0.1}, most_samples = 25}"
    )
    cluster.write_text(text)
    figures = tmp_path / "figures.json"
    assert run(["simulate", str(cluster), "--json", str(figures)]) == 0
    written = json.loads(figures.read_text())
    assert not {"flexrr", "backup-1"} & {row["scheme"] for row in written["schemes"]}
    shown = " ".join(capsys.readouterr().out.split())
    assert "flexrr left out: work reassignment cuts" in shown
    assert "backup-1 left out: backups=1: each worker would process 40 samples, worker 1 can take 25" in shown
    for name in ("flexrr", "backup"):
        assert run(["simulate", str(cluster), "--scheme", name]) == 2
    cluster.write_text(CLUSTER)
    monkeypatch.setattr("lbbsp.cli.simulate.MANY", 39)
    assert run(["simulate", str(cluster), "--json", str(figures)]) == 0
    assert "asp, ssp and flexrr left out: 40 worker" in json.loads(figures.read_text())["notes"][0]


def test_a_simulated_run_on_record(cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, figures = tmp_path / "record", tmp_path / "figures.json"
    options = ["--scheme", "static", "--record", str(folder), "--json", str(figures)]
    assert run(["simulate", str(cluster), *options]) == 0
    whole = read_run(folder)
    assert (whole.workers, whole.record.policy, whole.record.machine) == (2, "auto", {"platform": "simulated"})
    assert len(whole.iterations) == 2 * 20
    assert len(whole.decisions) == 20
    series = series_of(whole)
    assert series.complete.all()
    assert series.iteration_s.sum() == pytest.approx(json.loads(figures.read_text())["schemes"][1]["total_s"])
    assert recorded(whole).job().workers == 2
    assert run(["simulate", str(cluster), "--record", str(folder)]) == 2
    assert "something is there already" in " ".join(capsys.readouterr().err.split())
    cluster.write_text(CLUSTER.replace("30.0}", "30.0, leaves_at = 9}"))
    assert run(["simulate", str(cluster), "--record", str(tmp_path / "other")]) == 2
    assert "has joins or leaves" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--policy", "best"], 2, "choose one of auto"),
        (["--scheme", "best"], 2, "choose asp"),
        (["--iterations", "0"], 2, "--iterations 0: must be at least 1"),
        (["--json", "/nowhere/f.json"], 2, "no file can be written"),
        (["--speed", "1"], 2, "--speed"),
    ],
)
def test_bad_use(
    cluster: Path, arguments: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", str(cluster), *arguments]) == status
    assert says in " ".join(capsys.readouterr().err.split())


def test_broken_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text(CLUSTER.replace("30.0", "-30.0"))
    assert run(["simulate", str(broken)]) == 2
    message = "".join(capsys.readouterr().err.split())
    assert str(broken) in message
    assert "workers[0].speed_samples_per_s=-30.0" in message
    assert run(["simulate", str(tmp_path / "none")]) == 2
    assert "does not exist" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "empty").mkdir()
    assert run(["simulate", str(tmp_path / "empty")]) == 1
    assert "holds no rank-" in " ".join(capsys.readouterr().err.split())
