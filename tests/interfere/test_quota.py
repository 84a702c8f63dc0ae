"""CPU quotas on the real kernel; skipped where cgroups cannot be made."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lbbsp.errors import ConfigurationError
from lbbsp.interfere import available, join
from lbbsp.interfere.base import ENVIRONMENT
from lbbsp.interfere.cgroups import Hierarchy, find_hierarchy
from lbbsp.interfere.quota import Quotas

from .conftest import Launcher, left_behind

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("quotas_work")]


def test_each_worker_gets_its_share_and_the_changed_one(launch: Callable[..., Launcher]) -> None:
    launcher = launch("quota", [0.8, 0.5, 0.3, 0.2])
    assert "0.8, 0.5, 0.3, 0.2" in launcher.description
    launcher.assert_shares()
    assert launcher.set_shares([0.2, 0.3, 0.5, 0.8]) is None
    launcher.assert_shares()


def test_more_shares_than_cores_are_split_in_proportion(launch: Callable[..., Launcher]) -> None:
    launcher = launch("quota", [2.0, 1.0, 1.0])
    assert "in proportion" in launcher.description
    _, measured = launcher.measure()
    assert measured[0] <= 1.05  # one thread


def test_worker_measures_its_own_share() -> None:
    with Quotas([0.3]) as quotas:
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), "0", "measure"]
        environment = os.environ | quotas.environment() | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            word, share = process.stdout.readline().split()
            process.kill()
    assert word == "joined"
    assert float(share) == pytest.approx(0.3, abs=0.06)


def test_join_moves_all_threads_and_close_sets_them_free(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, tasks = threading.Event(), Path("/proc/self/task")
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with Quotas([0.9]) as quotas:
            for name, value in quotas.environment().items():
                monkeypatch.setenv(name, value)
            join(0)
            with pytest.raises(ConfigurationError, match="worker 1: must be 0 to 0"):
                join(1)
            groups = {(task / "cgroup").read_text() for task in tasks.iterdir()}
            assert len(groups) == 1
            assert f"lbbsp-{os.getpid()}-" in groups.pop()
        assert "lbbsp-" not in Path("/proc/self/cgroup").read_text()
        with pytest.raises(ConfigurationError, match="launcher must be alive"):
            join(0)
    finally:
        stop.set()
        thread.join()


def test_small_share_gets_a_longer_period() -> None:
    with Quotas([0.01, 0.5]) as quotas:
        paths = [Path(path) for path in json.loads(quotas.environment()[ENVIRONMENT])["groups"]]
        assert _limit(paths[0]) == (1_000, 100_000)
        assert _limit(paths[1]) == (10_000, 20_000)
        quotas.set_shares([0.5, 0.01])
        assert _limit(paths[0]) == (10_000, 20_000)
        assert _limit(paths[1]) == (1_000, 100_000)
        with pytest.raises(ConfigurationError, match=r"share 0.0001: a CPU quota must be 0.001"):
            quotas.set_shares([0.0001, 0.5])
    with pytest.raises(ConfigurationError, match="closed"):
        quotas.set_shares([0.5, 0.5])


def test_killed_launcher_leaves_workers_free_at_the_next_start(launch: Callable[..., Launcher]) -> None:
    launcher = launch("quota", [0.5, 0.2])
    launcher.kill()
    assert any("cgroup" in what for what in left_behind())
    orphan = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        left = next(find_hierarchy().directory.glob(f"lbbsp-{launcher.process.pid}-*"))
        (left / "cgroup.procs").write_text(str(orphan.pid))
        Quotas([0.5]).close()
        assert "lbbsp-" not in Path(f"/proc/{orphan.pid}/cgroup").read_text()
        assert not left.exists()
    finally:
        orphan.communicate(b"\n")


def test_quota_is_the_best_way() -> None:
    assert available() == ("quota", "competitors")


def test_nested_launcher_cannot_get_more_than_its_own_quota(tmp_path: Path) -> None:
    with Quotas([0.2]) as outer:
        group = Path(json.loads(outer.environment()[ENVIRONMENT])["groups"][0])
        if find_hierarchy().version == 2:
            pytest.skip("version 2 accepts it, and gives the lesser one")
        with pytest.raises(ConfigurationError, match="cannot be made in"):
            Quotas([0.5], hierarchy=Hierarchy(group, 1))
        Quotas([0.1], hierarchy=Hierarchy(group, 1)).close()


def _limit(group: Path) -> tuple[int, int]:
    if (group / "cpu.max").exists():
        quota_us, period_us = (group / "cpu.max").read_text().split()
        return int(quota_us), int(period_us)
    files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    quota_us, period_us = ((group / file).read_text() for file in files)
    return int(quota_us), int(period_us)
