"""What is trained: a loss with gradients over any samples, in float64."""

from __future__ import annotations

from typing import Protocol

from lbbsp.core.types import FloatArray, IntArray

__all__ = ["Task"]


class Task(Protocol):
    """A model and its data; parameters are one vector."""

    @property
    def name(self) -> str:
        """The name in tables."""
        ...

    @property
    def length(self) -> int:
        """N, training samples."""
        ...

    def start(self, seed: int) -> FloatArray:
        """The parameters before the first update."""
        ...

    def gradient(self, parameters: FloatArray, index: IntArray) -> FloatArray:
        """The gradient of the mean loss over the training samples ``index``."""
        ...

    def accuracy(self, parameters: FloatArray) -> float:
        """The share of held-out samples that are classified rightly."""
        ...

    def loss(self, parameters: FloatArray) -> float:
        """The mean loss over the held-out samples."""
        ...
