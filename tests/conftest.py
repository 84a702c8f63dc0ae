"""What every test gets: fixed hypothesis settings and a check that nothing is left behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.support import rank_pool

settings.register_profile(
    "lbbsp", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("lbbsp")


def _threads() -> set[int]:
    return {t.ident for t in threading.enumerate() if t.ident and "_serve" not in t.name}


def _children() -> set[int]:
    kept = rank_pool.pids()
    found = set()
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
        except psutil.Error:
            continue
        if child.pid not in kept and "resource_tracker" not in line and "forkserver" not in line:
            found.add(child.pid)
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread, a process or a changed environment behind."""
    threads, children, environment = _threads(), _children(), dict(os.environ)
    yield
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline and (_threads() - threads or _children() - children):
        time.sleep(0.05)
    left = [t.name for t in threading.enumerate() if t.ident in _threads() - threads]
    assert not left, f"threads left behind: {left}"
    assert not _children() - children, f"processes left behind: {_children() - children}"
    changed = {k for k in {*environment, *os.environ} if environment.get(k) != os.environ.get(k)}
    ours = {
        k for k in changed if not k.startswith(("PYTEST_", "TORCHINDUCTOR_", "KMP_"))
    }  # torch and sklearn set theirs
    assert not ours, f"environment changed: {ours}"


@pytest.fixture(scope="session")
def _pools() -> Iterator[list[rank_pool.RankPool]]:
    pools: list[rank_pool.RankPool] = []
    yield pools
    for pool in pools:
        pool.close()


@pytest.fixture
def ranks(_pools: list[rank_pool.RankPool]) -> rank_pool.RankPool:
    """Four real processes in one gloo process group, started once for all tests (again if one broke them)."""
    if not _pools or not _pools[-1].usable:
        _pools.append(rank_pool.RankPool(4))
    return _pools[-1]
