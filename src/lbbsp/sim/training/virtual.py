"""Training in virtual time: real gradients, applied in the order and with the staleness of a simulated clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from lbbsp.core.order import global_order
from lbbsp.core.types import FloatArray, IntArray
from lbbsp.errors import ConfigurationError
from lbbsp.sim.schemes import Timeline
from lbbsp.sim.training.base import Task

__all__ = ["Curve", "train"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """Held-out accuracy and loss in the course of a run; one point a global batch of samples, E of them.

    Args:
        scheme: the timeline's.
        updates: samples used so far in units of the global batch X, shape ``(E,)``: for BSP, updates.
        at_s: when, seconds.
        accuracy: of the held-out samples.
        loss: likewise.
        parameters: the last ones.
    """

    scheme: str
    updates: FloatArray
    at_s: FloatArray
    accuracy: FloatArray
    loss: FloatArray
    parameters: FloatArray

    def reached(self, target: float) -> int | None:
        """The first point whose loss is ``target`` or less; None if none is."""
        found = np.flatnonzero(self.loss <= target)
        return int(found[0]) if found.size else None

    def updates_to(self, target: float) -> float | None:
        """Statistical efficiency: updates of X samples until the loss is ``target``; None if it never is."""
        point = self.reached(target)
        return None if point is None else float(self.updates[point])

    def updates_to_accuracy(self, target: float) -> float | None:
        """Updates of X samples until the accuracy is ``target`` or more for the first time; None if it never is."""
        found = np.flatnonzero(self.accuracy >= target)
        return float(self.updates[found[0]]) if found.size else None

    def seconds_to(self, target: float) -> float | None:
        """Seconds until the loss is ``target``; None if it never is."""
        point = self.reached(target)
        return None if point is None else float(self.at_s[point])


class _Stream:
    """The global order of samples, epoch after epoch without a gap."""

    def __init__(self, length: int, seed: int) -> None:
        self._length, self._seed, self._epoch, self._at = length, seed, -1, length
        self._order: IntArray = np.zeros(0, dtype=np.int64)

    def take(self, count: int) -> IntArray:
        """The next ``count`` samples."""
        parts: list[IntArray] = []
        while count:
            if self._at == self._length:
                self._epoch, self._at = self._epoch + 1, 0
                self._order = global_order(self._length, seed=self._seed, epoch=self._epoch)
            part = self._order[self._at : self._at + count]
            self._at, count = self._at + part.size, count - part.size
            parts.append(part)
        return np.concatenate(parts)


def train(timeline: Timeline, task: Task, *, rate: float, momentum: float = 0.0, seed: int = 0) -> Curve:
    r"""Compute every gradient of the timeline on the parameters that it read, and apply it when the timeline says.

    Update u has gradients g_j of sizes x_j, s = sum_j x_j samples, the share f = s / X of a global batch.  With
    ``m = mu^f`` it is

    .. math:: v \leftarrow m v + \frac{1 - m}{1 - \mu} \sum_j \frac{x_j}{s} g_j(w_{\mathrm{read}(j)}),
              \qquad w \leftarrow w - \eta f v.

    For f = 1 this is SGD with momentum.  A sample weighs the same under every scheme: W updates of X / W samples
    decay the velocity as much as one of X, and go as far.  Samples are handed out from one stream, in the order
    in which gradients are applied.

    Args:
        timeline: of a scheme.
        task: what is trained.
        rate: eta, for a global batch.
        momentum: mu, in [0, 1).
        seed: of the start and of the order.

    Raises:
        ConfigurationError: the rate or the momentum is out of its range.
    """
    if not 0 < rate < np.inf:
        raise ConfigurationError(f"rate={rate}: must be positive and finite")
    if not 0 <= momentum < 1:
        raise ConfigurationError(f"momentum={momentum}: must lie in [0, 1)")
    g, x = timeline.gradients, timeline.global_batch_size
    needed = Counter(g.read.tolist())
    now, stream = task.start(seed), _Stream(task.length, seed)
    versions, velocity = {0: now}, np.zeros_like(now)
    points: list[tuple[float, float, float, float]] = []
    used = position = 0
    ends = np.searchsorted(g.update, np.arange(timeline.update_s.size), side="right")
    with np.errstate(over="ignore", invalid="ignore"):  # a rate may be too large for a scheme: then it diverges
        for update, end in enumerate(ends.tolist()):
            step, before = np.zeros_like(now), used
            for j in range(position, end):
                size, read = int(g.size[j]), int(g.read[j])
                step += size * task.gradient(versions[read], stream.take(size))
                used += size
                needed[read] -= 1
                if not needed[read]:
                    del versions[read]
            position = end
            share = (used - before) / x
            decay = momentum**share
            velocity = decay * velocity + (1 - decay) / (1 - momentum) * (step / (used - before))
            now = now - rate * share * velocity
            if needed[update + 1]:
                versions[update + 1] = now
            if used >= (len(points) + 1) * x:
                points.append((used / x, float(timeline.update_s[update]), task.accuracy(now), task.loss(now)))
    updates, at_s, accuracy, loss = np.array(points).T
    return Curve(scheme=timeline.scheme, updates=updates, at_s=at_s, accuracy=accuracy, loss=loss, parameters=now)
