"""A run goes on in mid-epoch where it stopped, with another number of workers too."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from lbbsp.torch import LoadBalancer, Settings
from tests.support.policies import RandomSizes
from tests.support.rank_pool import RankPool
from tests.support.training import flat, make_dataset, make_net, train_alone

N, X, EPOCHS = 57, 12, 3  # five iterations an epoch, the last one short


def train(
    rank: int, workers: int, use: int, stop_after: int, saved: dict[str, Any] | None, num_workers: int
) -> dict[str, Any] | None:
    """Train on the first ``use`` ranks, from a checkpoint or the start, for so many iterations at most."""
    group = dist.new_group(list(range(use)))
    if rank >= use:
        return None
    net = make_net()
    model = DDP(net, process_group=group)
    balancer = LoadBalancer(
        model,
        global_batch_size=X,
        policy=RandomSizes(use),
        settings=Settings(min_gain=0, warm_up=0, time_limit_s=30),
    )
    loader = balancer.data_loader(make_dataset(N), num_workers=num_workers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    start = 0
    if saved is not None:
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        balancer.load_state_dict(json.loads(json.dumps(saved["balancer"])))
        start = loader.epoch
    count, state, seen = 0, None, []
    for epoch in range(start, EPOCHS):
        loader.set_epoch(epoch)
        for features, classes, index in loader:
            loss = nn.functional.cross_entropy(model(features), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append((epoch, index.tolist() if balancer.batch_size else []))
            count += 1
            if count == stop_after:
                state = {
                    "net": copy.deepcopy(net.state_dict()),
                    "optimizer": copy.deepcopy(optimizer.state_dict()),
                    "balancer": balancer.state_dict(),
                }
                break
        if state:
            break
    balancer.close()
    return {
        "parameters": flat(net.parameters()),
        "state": state,
        "seen": seen,
        "lasts": balancer.last_decision,
    }


@pytest.mark.parametrize(
    ("first", "second", "stop_after", "num_workers"),
    [(3, 3, 7, 0), (3, 3, 1, 2), (4, 2, 8, 0), (2, 4, 5, 2), (1, 3, 4, 0), (4, 1, 13, 0), (2, 3, 10, 0)],
)
def test_resume(ranks: RankPool, first: int, second: int, stop_after: int, num_workers: int) -> None:
    begun = [r for r in ranks.run(train, first, stop_after, None, num_workers) if r]
    ended = [r for r in ranks.run(train, second, 10**6, begun[0]["state"], num_workers) if r]
    alone = train_alone(N, X, EPOCHS)
    difference = max(abs(a - b) for a, b in zip(ended[0]["parameters"], alone["parameters"], strict=True))
    assert difference <= 1e-12 * max(1.0, max(abs(v) for v in alone["parameters"]))
    for epoch in range(EPOCHS):
        seen = [i for r in [*begun, *ended] for e, part in r["seen"] if e == epoch for i in part]
        assert sorted(seen) == list(range(N))


def refuse(rank: int, workers: int, saved: dict[str, Any], x: int, n: int, options: dict[str, Any], two: bool) -> None:
    """Load a checkpoint that does not belong to the run."""
    balancer = LoadBalancer(DDP(make_net()), global_batch_size=x)
    try:
        balancer.data_loader(make_dataset(n), **options)
        if two:
            balancer.data_loader(make_dataset(n), **options)
        balancer.load_state_dict(saved)
    finally:
        balancer.close()


@pytest.mark.parametrize(
    ("x", "n", "options", "two", "message"),
    [
        (13, N, {}, False, "global_batch_size=12, this run 13"),
        (X, N + 1, {}, False, "length=57, this run's 58"),
        (X, N, {"seed": 4}, False, "seed=0, this run's 4"),
        (X, N, {"shuffle": False}, False, "shuffle=True, this run's False"),
        (X, N, {"drop_last": True}, False, "drop_last=False, this run's True"),
        (X, N, {}, True, "1 loader(s), this run 2"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    ranks: RankPool, x: int, n: int, options: dict[str, Any], two: bool, message: str
) -> None:
    begun = ranks.run(train, 2, 3, None, 0)
    for kind, value in ranks.outcomes(refuse, begun[0]["state"]["balancer"], x, n, options, two):
        assert kind == "failed"
        assert value[0] == "ResumeError"
        assert message in value[1]


def start_over(rank: int, workers: int, saved: dict[str, Any]) -> None:
    """Loop over all epochs after a resume."""
    balancer = LoadBalancer(DDP(make_net()), global_batch_size=X)
    loader = balancer.data_loader(make_dataset(N))
    balancer.load_state_dict(saved)
    try:
        loader.set_epoch(0)
    finally:
        balancer.close()


def test_starting_over_after_a_resume_is_refused(ranks: RankPool) -> None:
    begun = ranks.run(train, 2, 7, None, 0)
    for kind, value in ranks.outcomes(start_over, begun[0]["state"]["balancer"]):
        assert kind == "failed"
        assert "loop over range(loader.epoch, epochs)" in value[1]


def predictors_after_resume(rank: int, workers: int) -> tuple[float, float]:
    """The forecast that a rank reports first after a resume, and what it was before."""
    model = DDP(nn.Linear(1, 1))
    balancer = LoadBalancer(model, global_batch_size=16, settings=Settings(warm_up=0))
    loader = balancer.data_loader(make_dataset(64))
    for _ in loader:
        model(torch.ones(1, 1)).sum().backward()
    decision = balancer.last_decision
    assert decision is not None
    before = float(decision.forecast[rank])
    state = json.loads(json.dumps(balancer.state_dict()))
    state = balancer._exchange.gather_bytes(json.dumps(state).encode())[0]
    again = LoadBalancer(DDP(nn.Linear(1, 1)), global_batch_size=16, settings=Settings(warm_up=0))
    again.data_loader(make_dataset(64))
    again.load_state_dict(json.loads(state))
    forecaster = again._loop.runtime.forecaster
    after = float(forecaster.predictor.forecast(forecaster._state).mean[0])
    sizes = again._loop.runtime.sizes(again._loop.next_step).tolist() == decision.allocation.sizes.tolist()
    assert sizes
    balancer.close()
    again.close()
    return before, after


def test_speeds_and_sizes_are_carried_from_one_checkpoint(ranks: RankPool) -> None:
    for before, after in ranks.run(predictors_after_resume):
        assert after == pytest.approx(before, rel=1e-12)
