"""A rank that is killed, stuck or never came: the others end with an error that names it, in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from lbbsp.errors import RankLostError
from lbbsp.integrations.torch.exchange import TorchExchange
from lbbsp.torch import LoadBalancer, Settings
from tests.support.rank_pool import RankPool
from tests.support.training import make_dataset

LIMIT_S = 12.0  # the process group's and the exchange's limit in these tests
IN_TIME_S = 45.0


@pytest.fixture
def mortals() -> Iterator[RankPool]:
    """Three ranks that this test may kill."""
    pool = RankPool(3, timeout_s=LIMIT_S)
    yield pool
    pool.kill()
    pool.close()


def train(rank: int, workers: int, victim: int, how: str, num_workers: int) -> str:
    """Train; in the third iteration the victim goes."""
    model = DDP(nn.Linear(12, 4, dtype=torch.float64))
    balancer = LoadBalancer(model, global_batch_size=12, settings=Settings(time_limit_s=LIMIT_S))
    loader = balancer.data_loader(make_dataset(120), num_workers=num_workers)
    try:
        for k, (features, _, _) in enumerate(loader):
            if k == 3 and rank == victim:
                if how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                elif how == "stopped":
                    os.kill(os.getpid(), signal.SIGSTOP)
                else:
                    time.sleep(LIMIT_S + 6)
            loss = model(features).sum()
            if how == "killed after backward" and k == 3 and rank == victim:
                loss.backward()
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
    finally:
        balancer.close()
    return "done"


@pytest.mark.timeout(110)
@pytest.mark.parametrize(
    ("victim", "how", "num_workers"),
    [(2, "killed", 0), (1, "killed", 2), (1, "stopped", 0), (2, "stuck", 0)],
)
def test_the_others_name_the_rank(mortals: RankPool, victim: int, how: str, num_workers: int) -> None:
    started = time.monotonic()
    mortals.send(train, victim, how, num_workers)
    for rank in {0, 1, 2} - {victim}:
        kind, value = mortals.receive(rank, IN_TIME_S)
        assert kind == "failed"
        assert f"rank(s) [{victim}]" in value[1], value[2]
        assert ("alive but have not come" if how == "stuck" else "do not answer") in value[1]
    assert time.monotonic() - started < IN_TIME_S
    for process in mortals.processes:
        children = psutil.Process(process.pid).children(recursive=True) if process.is_alive() else []
        assert not [c for c in children if c.is_running() and c.status() != psutil.STATUS_ZOMBIE]


def absent(rank: int, workers: int) -> str:
    """Rank 1 makes no balancer."""
    if rank == 1:
        time.sleep(8)
        return "elsewhere"
    try:
        LoadBalancer(None, global_batch_size=12, settings=Settings(time_limit_s=4))
    except RankLostError as error:
        return f"{error.ranks} {error}"
    return "made"


def test_a_rank_that_makes_no_balancer_is_named(mortals: RankPool) -> None:
    first, _, third = mortals.run(absent)
    for message in (first, third):
        assert message.startswith("(1,) ")
        assert "did not come" in message


def no_show(rank: int, workers: int) -> Any:
    """Rank 2 comes to the first exchange and not to the second."""
    exchange = TorchExchange.beside(dist.group.WORLD, time_limit_s=3)  # type: ignore[arg-type]
    exchange.gather([float(rank)])
    if rank == 2:
        time.sleep(7)
        exchange.close()
        return None
    try:
        exchange.gather([1.0])
    except RankLostError as error:
        return str(error)
    finally:
        exchange.close()


def test_an_exchange_has_a_limit(mortals: RankPool) -> None:
    first, second, _ = mortals.run(no_show)
    for message in (first, second):
        assert "at most 3 s" in message
