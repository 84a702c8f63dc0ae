"""What workers have measured, condensed: a robust mean time for each of a few sizes, and the noise."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from lbbsp.core.types import FloatArray

__all__ = ["Seen"]

LONGEST = 64.0
"""A mean forgets: it weighs at least 1 / LONGEST of a new time."""
KEPT = 4
"""Sizes remembered beside the one in force."""
_SAME = 0.02
_FORGET = 0.8
_LEAST_NOISE, _FIRST_NOISE = 0.005, 0.05
_CLIP, _SLACK, _ALARM = 4.0, 1.0, 4.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Mean times at the size in force and at the last few before it.

    Args:
        x: size in force, samples, shape ``(W,)``.
        y: mean time there, seconds; 1 where n is 0.
        n: how many times went into the mean, at most ``LONGEST``; 0 where there is none yet.
        noise: relative standard deviation of a single time.
        up, down: cumulative sums of deviations towards slower and faster, in standard deviations.
        last: the time before, seconds.
        xs, ys, ns: the same as x, y, n for the sizes before, newest first, shape ``(KEPT, W)``; n = 0 for none.
    """

    x: FloatArray
    y: FloatArray
    n: FloatArray
    noise: FloatArray
    up: FloatArray
    down: FloatArray
    last: FloatArray
    xs: FloatArray
    ys: FloatArray
    ns: FloatArray

    @classmethod
    def nothing(cls, workers: int) -> Seen:
        """Nothing seen yet."""
        zero, one, none = np.zeros(workers), np.ones(workers), np.zeros((KEPT, workers))
        return cls(one, one, zero, np.full(workers, _FIRST_NOISE), zero, zero, one, none + 1.0, none + 1.0, none)

    def observe(self, sizes: FloatArray, times_s: FloatArray) -> tuple[Seen, bool]:
        """Take in the times of an iteration; also says whether a worker's speed has changed for good.

        Times at a size are averaged, single ones that stand out being clipped to four standard deviations.  If they
        keep standing out to one side (a cumulative sum test, Page 1954: a change of three standard deviations shows
        after two or three iterations), the worker has changed: the mean starts anew from the last two times, and what
        is known of other sizes is scaled alike.

        Args:
            sizes: samples, shape ``(W,)``; a worker without samples teaches nothing.
            times_s: seconds.
        """
        now = self
        if np.count_nonzero(sizes != self.x):
            now = self._moved_to(np.where(sizes > 0, sizes, self.x))
        times = np.where(sizes > 0, times_s, np.where(now.n > 0, now.y, times_s))
        first = now.n == 0
        y = np.where(first, times, now.y)
        expected_spread = now.noise * np.sqrt(1.0 + 1.0 / np.maximum(now.n, 1.0))
        deviation = times / y - 1.0
        z = np.minimum(np.maximum(deviation / expected_spread, -_CLIP), _CLIP)
        up, down = np.maximum(now.up + z - _SLACK, 0.0), np.maximum(now.down - z - _SLACK, 0.0)
        n = np.minimum(now.n + 1.0, LONGEST)
        mean = y * (1.0 + z * expected_spread / n)
        settled = np.where(first, 0.0, 1.0 / 32.0)
        square = np.minimum(np.abs(z), 3.0) * now.noise
        variance = now.noise * now.noise + (square * square - now.noise * now.noise) * settled
        noise = np.maximum(np.sqrt(variance), _LEAST_NOISE)
        changed = np.maximum(up, down) > _ALARM
        after = replace(now, y=mean, n=n, noise=noise, up=up, down=down, last=times)
        if not np.count_nonzero(changed):
            return after, False
        level = (times + now.last) / 2.0
        ratio = np.where(changed, level / y, 1.0)
        return replace(
            after,
            y=np.where(changed, level, mean),
            n=np.where(changed, 2.0, n),
            up=np.where(changed, 0.0, up),
            down=np.where(changed, 0.0, down),
            ys=now.ys * ratio,
        ), True

    def _moved_to(self, sizes: FloatArray) -> Seen:
        """Put the mean of the size in force beside the others, and take out that of the new one if it is known."""
        moved = sizes != self.x
        xs, ys = np.concatenate([self.x[None], self.xs]), np.concatenate([self.y[None], self.ys])
        ns = np.concatenate([self.n[None], self.ns * _FORGET])
        near = (np.abs(xs - sizes) <= _SAME * sizes) & (ns > 0)
        known, found = near.any(axis=0), near.argmax(axis=0)
        # Drop the one taken out, else one without a time, else the oldest.
        drop = np.where(known, found, np.where(self.n > 0, KEPT, 0))
        rows = np.arange(KEPT)[:, None]
        kept = rows + (rows >= drop)
        at = found[None]
        y = np.where(known, np.take_along_axis(ys, at, axis=0)[0], 1.0)
        n = np.where(known, np.minimum(np.take_along_axis(ns, at, axis=0)[0], 8.0), 0.0)
        return replace(
            self,
            x=sizes,
            y=np.where(moved, y, self.y),
            n=np.where(moved, n, self.n),
            up=np.where(moved, 0.0, self.up),
            down=np.where(moved, 0.0, self.down),
            xs=np.where(moved, np.take_along_axis(xs, kept, axis=0), self.xs),
            ys=np.where(moved, np.take_along_axis(ys, kept, axis=0), self.ys),
            ns=np.where(moved, np.take_along_axis(ns, kept, axis=0), self.ns),
        )

    def dump(self) -> dict[str, Any]:
        """Lists of numbers."""
        return {f.name: getattr(self, f.name).tolist() for f in fields(self)}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Seen:
        """From `dump`."""
        return cls(**{f.name: np.array(saved[f.name], dtype=np.float64) for f in fields(cls)})
