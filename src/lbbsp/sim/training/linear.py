"""Linear classifiers of two classes: logistic regression and the linear support vector machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lbbsp.core.types import FloatArray, IntArray
from lbbsp.sim.training.data import Split

__all__ = ["LinearTask"]


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearTask:
    r"""Minimise ``mean_n l(y_n w \cdot x_n) + (decay / 2) |w|^2`` with y in {-1, 1}.

    ``logistic``: ``l(m) = log(1 + e^{-m})``.  ``svm``: the squared hinge ``l(m) = max(0, 1 - m)^2 / 2``.

    Args:
        split: the data; features dense or sparse, a row a sample, with a column of ones for the intercept.
        kind: the loss.
        decay: of the weights.

    Source: the CPU workloads of Chen et al., SoCC 2020, section 5.1; squared hinge, Chang, Hsieh and Lin,
    "Coordinate Descent Method for Large-scale L2-loss Linear SVM", JMLR 9, 2008.
    """

    split: Split
    kind: Literal["logistic", "svm"] = "logistic"
    decay: float = 1e-4

    @property
    def name(self) -> str:
        """The loss and the data."""
        return f"{'logistic regression' if self.kind == 'logistic' else 'linear SVM'}, {self.split.name}"

    @property
    def length(self) -> int:
        """N."""
        return int(self.split.y.size)

    def start(self, seed: int) -> FloatArray:
        """Zeros: the loss is convex."""
        return np.zeros(self.split.x.shape[1])

    def gradient(self, parameters: FloatArray, index: IntArray) -> FloatArray:
        """``-mean_n s_n y_n x_n + decay w``, with s the logistic of -m or the hinge's excess."""
        x, y = self.split.x[index], self.split.y[index]
        slope = self._slope(y * (x @ parameters))
        return np.asarray(-(x.T @ (slope * y)) / index.size + self.decay * parameters)

    def _slope(self, margin: FloatArray) -> FloatArray:
        if self.kind == "svm":
            return np.maximum(0.0, 1.0 - margin)
        return np.asarray(0.5 * (1.0 - np.tanh(margin / 2)))  # 1 / (1 + e^m), without overflow

    def _margin(self, parameters: FloatArray) -> FloatArray:
        product: Any = self.split.x_held @ parameters
        return np.asarray(self.split.y_held * product)

    def accuracy(self, parameters: FloatArray) -> float:
        """Share of positive margins."""
        return float((self._margin(parameters) > 0).mean())

    def loss(self, parameters: FloatArray) -> float:
        """The mean loss, without the decay."""
        margin = self._margin(parameters)
        if self.kind == "svm":
            return float((np.maximum(0.0, 1.0 - margin) ** 2).mean() / 2)
        return float(np.logaddexp(0.0, -margin).mean())
