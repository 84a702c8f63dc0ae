"""Evaluation uses each sample once and its metrics are exact, between training batches too, and without DDP."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from lbbsp.torch import Limits, LoadBalancer, Settings
from tests.support.policies import FixedSizes
from tests.support.rank_pool import RankPool
from tests.support.training import make_dataset, make_net

N_TEST = 29  # no multiple of X, and more than one global batch


def evaluate(rank: int, workers: int, distributed: bool, loader_workers: int, n_test: int) -> dict[str, Any]:
    """Train with very unequal sizes; evaluate in the middle of an epoch."""
    net = make_net()
    model: nn.Module = DDP(net) if distributed else net
    sizes = FixedSizes((9, 0, 2, 1))
    limits = Limits(min_size=0)
    settings = Settings(min_gain=0, warm_up=0)
    balancer = LoadBalancer(model, global_batch_size=12, policy=sizes, limits=limits, settings=settings)
    train = balancer.data_loader(make_dataset(48))
    test = balancer.data_loader(make_dataset(n_test, seed=9), evaluate=True, shuffle=False, num_workers=loader_workers)
    seen, by_batch, steps, totals = [], 0.0, [], []
    for k, (features, classes, _) in enumerate(train):
        nn.functional.cross_entropy(model(features), classes).backward()
        if not distributed:
            balancer.report()
        before = balancer.batch_size, balancer.weight
        if k == 2:
            correct, count = 0.0, 0
            with torch.no_grad():
                for test_features, test_classes, index in test:
                    right = (net(test_features).argmax(1) == test_classes).double()
                    by_batch += balancer.total_size * float(balancer.mean(right.mean().item()))
                    totals.append(balancer.total_size)
                    if balancer.batch_size:
                        seen.extend(index.tolist())
                        correct, count = correct + right.sum().item(), count + len(index)
            metrics = [balancer.sum(correct), balancer.sum(float(count))]
        assert (balancer.batch_size, balancer.weight) == before
        steps.append(balancer._loop.next_step)
    balancer.close()
    features, classes, _ = make_dataset(n_test, seed=9).tensors
    alone = (net(features).argmax(1) == classes).sum().item()
    return {"seen": seen, "metrics": metrics, "by_batch": by_batch, "alone": alone, "steps": steps, "totals": totals}


@pytest.mark.parametrize(
    ("distributed", "loader_workers", "n_test"), [(True, 0, N_TEST), (False, 2, N_TEST), (True, 0, 5)]
)
def test_evaluation_is_exact(ranks: RankPool, distributed: bool, loader_workers: int, n_test: int) -> None:
    results = ranks.run(evaluate, distributed, loader_workers, n_test)
    assert sorted(i for r in results for i in r["seen"]) == list(range(n_test))
    for result in results:
        assert result["metrics"] == [result["alone"], n_test]
        assert abs(result["by_batch"] - result["alone"]) < 1e-12 * n_test
        assert sum(result["totals"]) == n_test
        assert result["steps"] == [1, 2, 3, 4]  # evaluation is no step
    assert len(results[0]["seen"]) > len(results[2]["seen"]) >= len(results[1]["seen"])  # as training is split
