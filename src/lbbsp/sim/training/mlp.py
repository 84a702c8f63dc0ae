"""A multilayer perceptron with one hidden layer and a softmax, its gradient written out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lbbsp.core.types import FloatArray, IntArray
from lbbsp.sim.training.data import Split

__all__ = ["MlpTask"]


@dataclass(frozen=True, eq=False, kw_only=True)
class MlpTask:
    """``softmax(tanh(x A + a) B + b)`` with cross-entropy; labels are 0..C-1.

    Args:
        split: the data, dense.
        hidden: units in the hidden layer.
    """

    split: Split
    hidden: int = 48

    @property
    def name(self) -> str:
        """The model and the data."""
        return f"perceptron, {self.split.name}"

    @property
    def length(self) -> int:
        """N."""
        return int(self.split.y.size)

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        features, classes = self.split.x.shape[1], int(self.split.y.max()) + 1
        return [(features, self.hidden), (self.hidden,), (self.hidden, classes), (classes,)]

    def start(self, seed: int) -> FloatArray:
        """Weights drawn with variance 1 / inputs, intercepts 0."""
        rng = np.random.default_rng(seed)
        parts = [rng.standard_normal(s) / np.sqrt(s[0]) if len(s) == 2 else np.zeros(s) for s in self._shapes]
        return np.concatenate([part.ravel() for part in parts])

    def _parts(self, parameters: FloatArray) -> list[FloatArray]:
        ends = np.cumsum([int(np.prod(s)) for s in self._shapes])
        return [p.reshape(s) for p, s in zip(np.split(parameters, ends[:-1]), self._shapes, strict=True)]

    def _forward(self, parameters: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The hidden layer, and the logarithms of the classes' probabilities."""
        a, a0, b, b0 = self._parts(parameters)
        hidden = np.tanh(x @ a + a0)
        score = hidden @ b + b0
        score -= score.max(axis=1, keepdims=True)
        return hidden, np.asarray(score - np.log(np.exp(score).sum(axis=1, keepdims=True)))

    def gradient(self, parameters: FloatArray, index: IntArray) -> FloatArray:
        """By backpropagation."""
        x, y = self.split.x[index], self.split.y[index].astype(np.int64)
        b = self._parts(parameters)[2]
        hidden, logs = self._forward(parameters, x)
        error = np.exp(logs)
        error[np.arange(y.size), y] -= 1.0
        error /= y.size
        back = (error @ b.T) * (1.0 - hidden**2)
        parts = [x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
        return np.concatenate([part.ravel() for part in parts])

    def accuracy(self, parameters: FloatArray) -> float:
        """Share of rightly classified held-out samples."""
        _, logs = self._forward(parameters, self.split.x_held)
        return float((logs.argmax(axis=1) == self.split.y_held).mean())

    def loss(self, parameters: FloatArray) -> float:
        """Mean cross-entropy of the held-out samples."""
        _, logs = self._forward(parameters, self.split.x_held)
        return float(-logs[np.arange(logs.shape[0]), self.split.y_held.astype(np.int64)].mean())
