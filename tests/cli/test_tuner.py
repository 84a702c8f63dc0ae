"""``lbbsp bench tuner``: every rule on every cluster, and what cannot be done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lbbsp.cli.app import run
from lbbsp.cli.bench.tuner import POLICIES

PROFILES = Path(__file__).resolve().parents[1] / "fixtures" / "profiles"


def test_every_rule_is_in_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pollux").mkdir()
    shutil.copyfile(PROFILES / "pollux" / "cifar10-placements.csv", tmp_path / "pollux" / "cifar10-placements.csv")
    out = tmp_path / "figures.json"
    assert (
        run(["bench", "tuner", "--profiles", str(tmp_path), "--iterations", "40", "--repeats", "1", "--json", str(out)])
        == 0
    )
    figures = json.loads(out.read_text())
    assert figures["command"] == "bench tuner"
    assert [cluster["name"] for cluster in figures["clusters"]] == ["cifar10, pollux"]
    steady = {row["policy"]: row for row in figures["overall"] if row["change"] == "steady"}
    assert set(steady) == {policy.name for policy in POLICIES}
    assert {row["change"] for row in figures["overall"]} == {"steady", "drift", "co-located", "step"}
    for row in figures["overall"]:
        assert row["time_over_oracle"] > 0.99
        assert 0 <= row["iterations_within"] <= 1
    assert steady["equal"]["runs_never_within"] == 1
    assert steady["fitted"]["iterations_to_within"] < steady["leader-straggler"]["iterations_to_within"]
    assert steady["fitted"]["time_over_oracle"] < steady["equal"]["time_over_oracle"]
    assert "leader-straggler" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([], "holds neither gavel"),
        (["--iterations", "5"], "iterations"),
        (["--noise", "2"], "must lie in"),
    ],
)
def test_bad_use_is_refused(tmp_path: Path, more: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "tuner", "--profiles", str(tmp_path), *more]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
