"""Handwritten digits and a small residual network."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from lbbsp.errors import MissingDependencyError

__all__ = ["ResidualNet", "digits"]


def digits(side: int) -> TensorDataset:
    """scikit-learn's 1,797 handwritten digits, enlarged from 8 to ``side`` pixels, with their classes.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingDependencyError(
            'the digits come with scikit-learn, which is not installed: pip install "lbbsp[demo]"'
        ) from error
    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 8.0 - 1.0
    enlarged = nn.functional.interpolate(images, size=(side, side), mode="bilinear", align_corners=False)
    return TensorDataset(enlarged, torch.tensor(bunch.target, dtype=torch.int64))


class _Block(nn.Module):
    """Two 3x3 convolutions around which the input is passed on."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        # GroupNorm looks at one sample at a time.  BatchNorm would look at a rank's whole batch, and a
        # network that does so depends on how the samples are split, in plain DDP too.
        self.body = nn.Sequential(
            nn.Conv2d(channels, out_channels, 3, stride, 1, bias=False),
            nn.GroupNorm(4, out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False),
            nn.GroupNorm(4, out_channels),
        )
        same = stride == 1 and channels == out_channels
        self.skip = nn.Identity() if same else nn.Conv2d(channels, out_channels, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.body(x) + self.skip(x))


class ResidualNet(nn.Module):
    """A ResNet in miniature: a stem, three stages of residual blocks, a linear classifier of ten digits."""

    def __init__(self, *, width: int, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, 1, 1, bias=False),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            _Block(width, width, 1),
            _Block(width, width, 2),
            _Block(width, 2 * width, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores, shape ``(batch, 10)``."""
        scores: torch.Tensor = self.layers(x)
        return scores
