"""Published device profiles are read as they are, and simulated clusters are made of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbbsp.core.allocate import minmax
from lbbsp.errors import ConfigurationError
from lbbsp.sim.profiles import Profile, ProfileTruth, read_gavel, read_pollux

PROFILES = Path(__file__).resolve().parents[1] / "fixtures" / "profiles"
GAVEL = PROFILES / "gavel" / "oracle_throughputs.json"


def test_pollux_gives_the_single_gpu_rows() -> None:
    profiles = read_pollux(PROFILES / "pollux")
    assert sorted(profiles) == ["cifar10", "imagenet", "ncf", "yolov3"]
    cifar10 = profiles["cifar10"]
    assert cifar10.most == 1024
    assert cifar10.time_s(32) == 0.0427886962890625 - 0.0004995360016822816


def test_gavel_gives_times_of_sized_jobs_and_slowdowns() -> None:
    gavel = read_gavel(GAVEL)
    assert sorted(gavel.devices("ResNet-18")) == ["k80", "p100", "v100"]
    raw = json.loads(GAVEL.read_bytes())["k80"]["ResNet-18 (batch size 64)"]
    k80 = gavel.devices("ResNet-18")["k80"]
    assert k80.time_s(64) == 1 / raw["null"]
    slowdowns = gavel.slowdowns["ResNet-18", "k80"]
    assert raw["null"] / raw["A3C"][0] in slowdowns
    assert min(slowdowns) >= 1
    with pytest.raises(ConfigurationError, match="no profile of job 'GPT'; there are"):
        gavel.devices("GPT")


def test_a_rate_of_zero_is_a_size_that_did_not_run(tmp_path: Path) -> None:
    jobs = {f"R (batch size {x})": {"null": rate} for x, rate in ((1, 4.0), (2, 2.0), (4, 0.0))}
    (tmp_path / "g.json").write_text(json.dumps({"k80": jobs}))
    assert read_gavel(tmp_path / "g.json").devices("R")["k80"].most == 2


def test_a_profile_keeps_its_dips_and_holds_its_ends() -> None:
    profile = Profile("job", "gpu", [4, 8, 16], [0.3, 0.2, 0.6])
    np.testing.assert_allclose(profile.time_s([1, 4, 6, 8, 12, 16]), [0.3, 0.3, 0.25, 0.2, 0.4, 0.6])


@pytest.mark.parametrize(
    ("sizes", "times", "why"),
    [
        ([4], [0.1], "2 or more sizes"),
        ([4, 8], [0.1], "one time for each"),
        ([8, 4], [0.1, 0.2], "must ascend"),
        ([0, 4], [0.1, 0.2], "from 1 sample"),
        ([4, 8], [0.1, float("nan")], "positive and finite"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(sizes: list[int], times: list[float], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Profile("job", "gpu", sizes, times)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "cannot be read"),
        ("[]", "the file must hold an object"),
        ('{"k80": 3}', "k80 must hold an object"),
        ('{"k80": {"R (batch size 4)": {"null": -1}}}', "-1 is no rate"),
        ('{"k80": {"R (batch size 4)": {"null": 2, "S": [1]}}}', r"with S: \[1\] is no pair"),
    ],
)
def test_gavel_says_what_is_wrong_and_where(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "g.json"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=why):
        read_gavel(file)
    with pytest.raises(ConfigurationError, match=r"none\.json: cannot be read"):
        read_gavel(tmp_path / "none.json")


def test_pollux_says_what_is_wrong_and_where(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no file named"):
        read_pollux(tmp_path)
    file = tmp_path / "job-placements.csv"
    file.write_text("placement,local_bsz\n1,2\n")
    with pytest.raises(ConfigurationError, match="lacks step_time, sync_time"):
        read_pollux(tmp_path)
    shutil.copyfile(PROFILES / "pollux" / "ncf-placements.csv", file)
    with file.open("a") as lines:
        lines.write("1,many,0.1,0\n")
    with pytest.raises(ConfigurationError, match=r"line 4.*many"):
        read_pollux(tmp_path)


def test_a_truth_repeats_itself_whatever_the_order() -> None:
    truth = ProfileTruth(list(read_gavel(GAVEL).devices("LM").values()), noise=0.05, seed=3)
    x = np.array([20, 30, 40])
    later, first = truth.times_s(7, x), truth.times_s(0, x)
    assert truth.times_s(0, x).tolist() == first.tolist()
    assert truth.times_s(7, x).tolist() == later.tolist()
    many = np.array([truth.times_s(k, x) / truth.quiet_times_s(k, x) for k in range(400)])
    np.testing.assert_allclose(many.mean(axis=0), 1, atol=0.01)
    np.testing.assert_allclose(many.std(axis=0), 0.05, rtol=0.1)


def test_factors_slow_a_device_and_its_model_from_their_iteration_on() -> None:
    profiles = list(read_gavel(GAVEL).devices("LM").values())
    truth = ProfileTruth(profiles, factors=[[1, 1, 1], [2, 1, 1]])
    x = np.array([20, 20, 20])
    np.testing.assert_allclose(truth.times_s(5, x), truth.times_s(0, x) * [2, 1, 1])
    np.testing.assert_allclose(truth.models(1).time_s(x), truth.times_s(1, x))
    best = minmax(truth.models(1), 60, truth.bounds())
    assert truth.models(1).time_s(best).max() <= truth.models(1).time_s(x).max()


@pytest.mark.parametrize("given", [{"noise": -1.0}, {"factors": [[1.0]]}, {"factors": [[0.0, 1.0, 1.0]]}])
def test_a_truth_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ProfileTruth(list(read_gavel(GAVEL).devices("LM").values()), **given)
    with pytest.raises(ConfigurationError, match="0 profiles"):
        ProfileTruth([])
