"""``lbbsp reproduce``: every comparison once, short, and bad use."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbbsp.cli.app import run
from lbbsp.cli.reproduce.command import SECTIONS
from lbbsp.cli.reproduce.section import number
from lbbsp.cli.reproduce.traces import batch_speeds, machines
from lbbsp.core.policy import Equal, Proportional
from lbbsp.errors import ConfigurationError
from lbbsp.telemetry.schema import encode
from tests.sim.test_replay import played


def record(folder: Path, name: str, policy: Equal | Proportional, mode: str) -> None:
    """A segment of a demo, of 30 and 10 samples/s."""
    whole = played(np.tile([30.0, 10.0], (12, 1)), policy, mode=mode)
    (folder / name).mkdir(parents=True)
    for rank in (0, 1):
        lines = [encode(whole.record), *(encode(r) for r in whole.iterations if r.rank == rank)]
        (folder / name / f"rank-{rank:05}.jsonl").write_bytes(b"".join(lines))


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    record(tmp_path / "demo", "0-plain", Equal(), "plain")
    record(tmp_path / "demo", "1-balanced", Proportional(), "balanced")
    return tmp_path / "demo"


def rows_of(figures: dict[str, Any], section: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = figures["sections"][section]["rows"]
    return found


def test_every_comparison(tmp_path: Path, demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figures_file = tmp_path / "out", tmp_path / "figures.json"
    assert run(["reproduce", "--out", str(out), "--short", "--run", str(demo), "--json", str(figures_file)]) == 0
    figures = json.loads(figures_file.read_text())
    assert (figures["schema"], figures["command"], figures["seed"]) == (1, "reproduce", 0)
    assert list(figures["sections"]) == list(SECTIONS)
    report = (out / "report.md").read_text()
    for name in SECTIONS:
        assert (out / f"{name}.png").stat().st_size > 5_000
        assert f"({name}.png)" in (out / f"{name}.md").read_text()
        assert figures["sections"][name]["title"] in report
        with (out / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.reader(file))) == 1 + len(rows_of(figures, name))
    for section in ("cpu", "gpu"):
        for row in rows_of(figures, section):
            if row["scheme"].startswith("lb-bsp"):
                assert row["speedup"] <= row["bound"] * 1.1  # noise is not foreseen by the bound either
            if row["scheme"] == "lb-bsp/auto":
                assert row["paper's"] > 1
                assert row["speedup"] > 1
    assert figures["sections"]["statistical"]["lb_bsp_largest_difference"] < 1e-6
    assert figures["sections"]["validation"]["largest_error"] < 1e-9
    assert {row["noise"] for row in rows_of(figures, "maps")} == {0.0, 0.05, 0.2}
    assert "No traces were given" in report
    assert "report.md" in capsys.readouterr().out


def test_runs_repeat_from_their_seed(tmp_path: Path) -> None:
    tables = []
    for n, seed in enumerate(("1", "1", "2")):
        out = tmp_path / str(n)
        assert run(["reproduce", "--out", str(out), "--short", "--only", "gpu", "--only", "cpu", "--seed", seed]) == 0
        tables.append(((out / "gpu.csv").read_text(), (out / "cpu.csv").read_text()))
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]


def test_recorded_traces(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "traces" / "pai"
    folder.mkdir(parents=True)
    lines = ["row,worker,gpu,time,batch_time_norm"]
    lines += [f"{k},{w},25,{10 * k + 1},{100 if w else 400}" for k in range(30) for w in (0, 1)][:-1]
    (folder / "job_1_norm.csv").write_text("\n".join(lines) + "\n")
    speeds = batch_speeds(folder / "job_1_norm.csv")
    assert speeds.shape == (29, 2)  # worker 1 was not measured in the last
    assert speeds[0].tolist() == [2.5, 10.0]
    figures_file = tmp_path / "figures.json"
    options = ["--only", "traces", "--data", str(tmp_path / "data"), "--json", str(figures_file)]
    assert run(["reproduce", "--out", str(tmp_path / "out"), *options]) == 0
    rows = {row["scheme"]: row for row in rows_of(json.loads(figures_file.read_text()), "traces")}
    assert rows["bsp"]["efficiency (of X / sum v)"] == pytest.approx(5 / 12.5)
    assert rows["bsp"]["bound"] == pytest.approx(2.5)
    assert rows["lb-bsp/auto"]["efficiency (of X / sum v)"] > 0.9
    assert rows["static, true means"]["efficiency (of X / sum v)"] == pytest.approx(1.0, abs=0.02)


def test_machine_usage(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "machine_usage.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write(
            "m_2,130,100,,,,,,\nm_2,10,50,,,,,,\nm_1,0,20,,,,,,\nm_1,180,,,,,,,\nm_1,190,60,,,,,,\nm_1932,0,9,,,,,,\n"
        )
    assert machines(path, 3).tolist() == [[0.8, 0.5], [0.8, 0.5], [0.8, 0.5]]
    with pytest.raises(ConfigurationError, match="m_2 ends at 130 s, before step 4"):
        machines(path, 4)


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (1.23456, "1.235"), (123456.0, "123,456"), (10_000, "10,000"), ("a", "a")]
)
def test_cells(value: Any, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "gpus"], "--only gpus: choose of cpu, gpu"),
        (["--seed", "-1"], "--seed -1: must be 0 or more"),
        (["--data", "{tmp}"], "holds none of traces"),
        (["--run", "{tmp}/none"], "no such folder"),
        (["--run", "{tmp}"], "holds no plain and balanced segment"),
        (["--json", "{tmp}/none/f.json"], "no file can be written"),
        (["--out", "{tmp}/file"], "cannot be written"),
    ],
)
def test_bad_use(tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    filled = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    out = [] if "--out" in filled else ["--out", str(tmp_path / "out")]
    assert run(["reproduce", *out, "--short", *filled]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_demo_without_a_balanced_segment_is_refused(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(demo / "1-balanced")
    assert run(["reproduce", "--out", str(demo / "out"), "--run", str(demo)]) == 2
    assert "holds no plain and balanced" in " ".join(capsys.readouterr().err.split())
