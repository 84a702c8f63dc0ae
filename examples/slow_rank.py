"""Rank 1 has a disk that is three times slower: train twice, first observed, then balanced.

OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 examples/slow_rank.py

Each run is recorded in a folder of its own, runs/observe and runs/balanced.
"""

import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset

from lbbsp.torch import LoadBalancer, Settings

Sample = tuple[torch.Tensor, torch.Tensor]


class Digits(Dataset[Sample]):
    """The digits, each of which takes ``seconds`` to read."""

    def __init__(self, seconds: float) -> None:
        pixels, digits = load_digits(return_X_y=True)
        self.images = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8)
        self.labels = torch.tensor(digits)
        self.seconds = seconds

    def __len__(self) -> int:
        return 1500

    def __getitem__(self, index: int) -> Sample:
        time.sleep(self.seconds)
        return self.images[index], self.labels[index]


def train(mode: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, 10))
    model = DDP(net)
    settings = Settings(observe_only=mode == "observe")
    balancer = LoadBalancer(model, global_batch_size=50, telemetry=f"runs/{mode}", settings=settings)
    loader = balancer.data_loader(Digits(0.003 if balancer.rank == 1 else 0.001))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for epoch in range(2):
        loader.set_epoch(epoch)
        started = time.perf_counter()
        for inputs, targets in loader:
            loss = loss_fn(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - started
        train_loss = balancer.mean(loss.item())
        if balancer.rank == 0 and balancer.last_decision is not None:
            sizes = balancer.last_decision.allocation.sizes.tolist()
            print(f"{mode}, epoch {epoch}: {seconds:.1f} s, last loss {train_loss:.4f}, sizes {sizes}")
    balancer.close()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train("observe")
    train("balanced")
    dist.destroy_process_group()
