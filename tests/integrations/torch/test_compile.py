"""Few shapes with torch.compile: as many programs as sizes, and no more."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from lbbsp.core.policy import FewShapes
from lbbsp.torch import Limits, LoadBalancer, Settings
from tests.support.policies import RandomSizes
from tests.support.rank_pool import RankPool
from tests.support.training import make_dataset

MOST = 3


def train(rank: int, workers: int, few: bool, micro: bool) -> tuple[int, set[int]] | None:
    """Thirty iterations of two ranks whose policy proposes other sizes each time: programs compiled, sizes seen."""
    group = dist.new_group([0, 1])
    if rank >= 2:
        return None
    import torch._dynamo.testing  # slow to import, and of use here alone

    torch._dynamo.reset()
    programs = torch._dynamo.testing.CompileCounter()  # counts graphs, runs them as they are
    net = nn.Linear(12, 4, dtype=torch.float64)
    model = DDP(net, process_group=group)
    policy: Any = RandomSizes(5)
    balancer = LoadBalancer(
        model,
        global_batch_size=32,
        policy=FewShapes(policy=policy, most=MOST) if few else policy,
        limits=Limits(granularity=4 if micro else 1),
        settings=Settings(min_gain=0, warm_up=0),
    )
    compiled = torch.compile(net, backend=programs, dynamic=False)
    sizes = set()
    with torch._dynamo.config.patch(recompile_limit=64):
        if micro:
            sampler = balancer.micro_batch_sampler(make_dataset(960), micro_batch_size=4)
            loader: Any = balancer.updates(torch.utils.data.DataLoader(make_dataset(960), batch_sampler=sampler))
        else:
            loader = ([batch] for batch in balancer.data_loader(make_dataset(960)))
        for batches in loader:
            for features, _, _ in batches:
                sizes.add(len(features))
                model(features).sum().backward()
                compiled(features)
    balancer.close()
    torch._dynamo.reset()
    return programs.frame_count, sizes


def test_few_shapes_are_few_programs(ranks: RankPool) -> None:
    for programs, sizes in ranks.run(train, True, False)[:2]:
        assert programs == len(sizes)
        assert 2 <= len(sizes) <= MOST


def test_without_it_every_size_is_a_program(ranks: RankPool) -> None:
    for programs, sizes in ranks.run(train, False, False)[:2]:
        assert programs == len(sizes) > MOST


def test_micro_batches_are_one_program(ranks: RankPool) -> None:
    for outcome in ranks.run(train, False, True)[:2]:
        assert outcome == (1, {4})
