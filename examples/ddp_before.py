"""Plain DDP on scikit-learn's handwritten digits.

torchrun --nproc-per-node 2 examples/ddp_before.py
"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    dist.init_process_group("gloo")
    pixels, digits = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(digits)
    train_set = TensorDataset(images[297:], labels[297:])
    test_images, test_labels = images[:297], labels[:297]

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, 10))
    model = DDP(net)
    sampler: DistributedSampler[int] = DistributedSampler(train_set, seed=0)
    loader = DataLoader(train_set, batch_size=50 // dist.get_world_size(), sampler=sampler)
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = loss_fn(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            scores = net(test_images)
        if dist.get_rank() == 0:
            accuracy = (scores.argmax(1) == test_labels).float().mean()
            print(f"epoch {epoch}: test loss {loss_fn(scores, test_labels):.3f}, accuracy {accuracy:.1%}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
