"""lbbsp bench predict on small traces, and on broken ones."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from lbbsp.cli.app import run as lbbsp
from lbbsp.cli.bench.predict import PREDICTORS, error_ratios, forecasts
from lbbsp.core.predict import LastValue


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "pai").mkdir()
    with (tmp_path / "pai" / "job_1_norm.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["", "worker", "gpu", "time", "batch_time_norm"])
        for k in range(40):
            for worker in range(2):
                rows.writerow(
                    [2 * k + worker, worker, 25, 10 * k + 1, round(400 * (1 + worker) * rng.uniform(0.9, 1.1))]
                )
    return tmp_path


def test_figures_of_a_small_trace(traces: Path) -> None:
    out = traces / "figures.json"
    assert lbbsp(["bench", "predict", "--traces", str(traces), "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert {row["predictor"] for row in figures["rows"]} == set(PREDICTORS)
    last = next(row for row in figures["rows"] if row["predictor"] == "last")
    assert (last["median"], last["worst"]) == (1.0, 1.0)
    assert all(0.5 < row["efficiency at risk 0.75"] <= 1 for row in figures["rows"])


def test_last_value_forecasts_the_row_before_and_a_constant_is_no_error() -> None:
    speeds = np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0], [3.0, 5.0], [7.0, 5.0]])
    ahead = forecasts(LastValue(), speeds)
    assert ahead[1:].tolist() == speeds[:-1].tolist()
    assert error_ratios(speeds, ahead).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("alibaba2018/machine_usage.csv.gz", gzip.compress(b"m_1,0,50,50\n" * 99)[:30]),
        ("alibaba2018/machine_usage.csv.gz", b"no gzip"),
        ("pai/job_2_norm.csv", b"worker,time\n0,1\n"),
        ("pai/job_2_norm.csv", b",worker,gpu,time,batch_time_norm\n0,0,25,1,fast\n"),
        ("nab/ec2.csv", b"timestamp,cpu\n0,1\n"),
    ],
)
def test_broken_traces_are_named(tmp_path: Path, name: str, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    path.write_bytes(content)
    assert lbbsp(["bench", "predict", "--traces", str(tmp_path)]) == 2
    assert "--traces" in capsys.readouterr().err


def test_a_folder_without_traces(tmp_path: Path) -> None:
    assert lbbsp(["bench", "predict", "--traces", str(tmp_path)]) == 2
