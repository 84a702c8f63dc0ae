"""More of what training scripts do: compressing hooks, compilers, several models, several groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from lbbsp.core.order import global_order
from lbbsp.torch import Limits, LoadBalancer, Settings
from tests.integrations.torch.test_variants import far
from tests.support.policies import FixedSizes, RandomSizes
from tests.support.rank_pool import RankPool
from tests.support.training import flat, make_dataset, make_net

N, X, SIZES = 92, 23, (12, 6, 3, 2)
NOW = Settings(min_gain=0.0, warm_up=0, time_limit_s=30)


def hook_of(name: str) -> tuple[Any, Any]:
    """A hook of torch's with its state."""
    if name == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
        )
        return state, powerSGD_hook.powerSGD_hook
    return None, getattr(default_hooks, f"{name}_compress_hook")


def compressed(rank: int, workers: int, name: str) -> tuple[list[float], list[float]]:
    """Balanced around a hook, and plain DDP with the same hook, the same batches and a weighted loss."""
    model = DDP(make_net())
    with LoadBalancer(
        model, global_batch_size=X, policy=FixedSizes(SIZES), comm_hook=hook_of(name), settings=NOW
    ) as balancer:
        loader, sizes = balancer.data_loader(make_dataset(N)), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for features, classes, _ in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(features), classes).backward()
            optimizer.step()
            sizes.append([int(s) for s in balancer._exchange.gather([balancer.batch_size])[:, 0]])
    plain = DDP(make_net())
    state, hook = hook_of(name)
    plain.register_comm_hook(state, lambda state, bucket: hook(state, bucket))  # or DDP refuses bf16 on the CPU
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    features, classes, _ = make_dataset(N).tensors
    order = torch.from_numpy(global_order(N, seed=0, epoch=0))
    for k, step_sizes in enumerate(sizes):
        start = k * X + sum(step_sizes[:rank])
        index = order[start : start + step_sizes[rank]]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(plain(features[index]), classes[index])
        (loss * (workers * step_sizes[rank] / X)).backward()
        optimizer.step()
    return flat(model.parameters()), flat(plain.parameters())


@pytest.mark.parametrize(("name", "tolerance"), [("fp16", 1e-3), ("bf16", 1e-2), ("powersgd", 1e-9)])
def test_compressing_hooks(ranks: RankPool, name: str, tolerance: float) -> None:
    """Each hook does to the weighted gradients what it does to those of a weighted loss."""
    results = ranks.run(compressed, name)
    for balanced, plain in results:
        assert far(balanced, plain) <= tolerance
        assert balanced == results[0][0]
        assert far(balanced, flat(make_net().parameters())) > 1e-2  # it did learn


def compiled(rank: int, workers: int, outside: bool) -> tuple[list[int], int, float]:
    """Sizes seen, frames compiled, and how far the weights are from those of the same run without a compiler."""
    from torch._dynamo.testing import CompileCounter

    ends = []
    counter = CompileCounter()
    for compiles in (True, False):
        torch._dynamo.reset()
        net: Any = make_net()
        if compiles and not outside:
            net = torch.compile(net, backend=counter, dynamic=False)
        model: Any = DDP(net)
        if compiles and outside:
            model = torch.compile(model, backend=counter, dynamic=False)
        limits = Limits(granularity=4)
        with LoadBalancer(model, global_batch_size=28, policy=RandomSizes(1), limits=limits, settings=NOW) as balancer:
            loader, sizes = balancer.data_loader(make_dataset(28 * 12)), []
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for features, classes, _ in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(features), classes).backward()
                optimizer.step()
                sizes.append(len(features))
        ends.append(flat(model.parameters()))
    return sizes, counter.frame_count, far(ends[0], ends[1])


@pytest.mark.parametrize("outside", [False, True])
def test_a_compiler_sees_few_shapes(ranks: RankPool, outside: bool) -> None:
    """A compilation for each size that occurs, and the granularity keeps these few."""
    for sizes, compilations, difference in ranks.run(compiled, outside):
        assert difference <= 1e-12
        assert set(sizes) <= {4, 8, 12, 16}
        assert compilations == len(set(sizes))


def adversaries(rank: int, workers: int, first: int) -> dict[str, Any]:
    """Two models and two optimizers, on batches of one loader, on two halves of the ranks."""
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = halves[rank // 2]
    models = [DDP(make_net(seed), process_group=group) for seed in (1, 2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    sizes = (first, X - first) if rank < 2 else (X - first, first)
    with LoadBalancer(models, global_batch_size=X, policy=FixedSizes(sizes), settings=NOW) as balancer:
        loader, reported, seen = balancer.data_loader(make_dataset(N)), [], []
        for features, classes, _ in loader:
            for which in (0, 1):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                outputs = [model(features) for model in models]
                loss = nn.functional.cross_entropy(outputs[which], classes)
                (loss + (outputs[0] * outputs[1]).mean()).backward()
                optimizers[which].step()
                assert balancer._loop.step is not None
                reported.append(balancer._loop.step.reported)
            seen.append(balancer.batch_size)
    return {"parameters": [flat(m.parameters()) for m in models], "reported": reported, "seen": seen}


def test_several_models_and_groups(ranks: RankPool) -> None:
    nets = [make_net(seed) for seed in (1, 2)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    features, classes, _ = make_dataset(N).tensors
    order = torch.from_numpy(global_order(N, seed=0, epoch=0))
    for start in range(0, N, X):
        index = order[start : start + X]
        for which in (0, 1):
            for optimizer in optimizers:
                optimizer.zero_grad()
            outputs = [net(features[index]) for net in nets]
            loss = nn.functional.cross_entropy(outputs[which], classes[index])
            (loss + (outputs[0] * outputs[1]).mean()).backward()
            optimizers[which].step()
    results = ranks.run(adversaries, 17)
    for result in results:
        for which in (0, 1):
            assert far(result["parameters"][which], flat(nets[which].parameters())) <= 1e-12
        assert result["reported"][4:] == [False, True, False, True]  # after the last of four reductions
    assert [r["seen"][-1] for r in results] == [17, 6, 6, 17]
