"""Time models fitted to what workers measured: flat below a saturation size, linear above, careful where unseen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lbbsp.core.seen import Seen
from lbbsp.core.time_models import largest_by_bisection
from lbbsp.core.types import FloatArray, IntArray

__all__ = ["FittedTimes", "fit"]

_TINY = 1e-150


@dataclass(frozen=True, eq=False, slots=True)
class FittedTimes:
    """``T_i(x) = max(flat_i, fixed_i + per_sample_i x, beyond_i x)``.

    The last term is the caution: it equals the fit at the edge of what was seen and grows in proportion to the batch
    beyond it.  No device whose time is some fixed cost and a cost a sample is slower than that, so samples sent there
    take no longer than expected, and what is measured moves the edge.

    Args:
        flat_s: s_i, seconds, shape ``(W,)``.
        fixed_s: a_i, seconds; negative for a device that slows more than in proportion.
        per_sample_s: b_i >= 0, seconds a sample.
        beyond_s: seconds a sample, > 0.
    """

    flat_s: FloatArray
    fixed_s: FloatArray
    per_sample_s: FloatArray
    beyond_s: FloatArray

    def time_s(self, sizes: IntArray) -> FloatArray:
        """T_i(x_i) in seconds."""
        line = np.maximum(self.fixed_s + self.per_sample_s * sizes, self.beyond_s * sizes)
        return np.asarray(np.maximum(line, self.flat_s))

    def time_of(self, workers: IntArray, sizes: IntArray) -> FloatArray:
        """T_w(x) for pairs."""
        line = self.fixed_s[workers] + self.per_sample_s[workers] * sizes
        return np.asarray(np.maximum(np.maximum(line, self.beyond_s[workers] * sizes), self.flat_s[workers]))

    def largest_within(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """Closed form; checked, and by bisection in the rare case that rounding put a size off."""
        x = self.sizes_near(limit_s, lo, hi)
        fits = (self.time_s(x) <= limit_s) | (x == lo)
        full = (self.time_s(x + 1) > limit_s) | (x == hi)
        if np.count_nonzero(fits & full) == x.size:
            return x
        return largest_by_bisection(self, limit_s, lo, hi)

    def sizes_near(self, limit_s: float, lo: IntArray, hi: IntArray) -> IntArray:
        """The closed form."""
        limit = max(0.0, min(limit_s, 1e100))
        room = np.minimum((limit - self.fixed_s) / np.maximum(self.per_sample_s, _TINY), limit / self.beyond_s)
        within = np.minimum(np.maximum(room, lo), hi).astype(np.int64)
        return np.where(self.flat_s > limit_s, lo, within)

    def limit_guess_s(self, total: int) -> tuple[float, float]:
        """Two Newton steps towards the limit at which unbounded, unrounded sizes would sum to ``total``."""
        limit, slope = total / float(np.add.reduce(1.0 / self.beyond_s)), 0.0
        for _ in range(2):
            beyond = limit / self.beyond_s
            line = (limit - self.fixed_s) / np.maximum(self.per_sample_s, _TINY)
            on_line, still = line < beyond, limit < self.flat_s
            rate = 1.0 / np.where(on_line, np.maximum(self.per_sample_s, _TINY), self.beyond_s)
            held = np.add.reduce(np.where(still, 0.0, np.where(on_line, line, beyond)))
            slope = 1.0 / float(np.add.reduce(np.where(still, 1e-3, 1.0) * rate))
            limit += slope * (total - float(held))
        return limit, slope


def _sum(rows: Iterable[FloatArray]) -> FloatArray:
    """Elementwise, in the order given, so that all hosts round alike."""
    total: FloatArray | None = None
    for row in rows:
        total = row if total is None else total + row
    if total is None:
        raise AssertionError
    return total


def fit(seen: Seen, *, elasticity_spread: float, simplicity: float = 4.0) -> FittedTimes:
    r"""Fit ``max(s, a + b x)`` to each worker's mean times at the sizes it has run, and bound it beyond them.

    In units of the size and the mean time now in force (u = x / x_now, v = t / t_now), for each way to part the sizes
    seen into small ones (flat) and large ones (on the line):

        s = mean of v over the small ones,     weights n (1 / v)^2 / (1 + (u - 1)^2)
        b = (S_uv + l b0) / (S_uu + l),     b0 = mean v / mean u,     l = (noise / elasticity_spread)^2
        a = mean v - b mean u

    The slope's prior says "in proportion" until sizes far enough apart say otherwise.  The parting with the least
    weighted squared error in units of the noise wins, a flat part costing ``simplicity`` more.  The result is scaled
    to agree with the mean time now in force, the more so the better that is known: what is decided next is decided
    near it, and no two-piece line fits every device everywhere.

    Args:
        seen: what was measured.
        elasticity_spread: standard deviation of the prior of ``b / b0``.
        simplicity: what a flat part must save, see above.

    Source: segmented regression with a known number of segments (Hudson, JASA 61, 1966), with a ridge on the slope.
    """
    x = np.concatenate([seen.x[None], seen.xs])
    t = np.concatenate([seen.y[None], seen.ys])
    n = np.concatenate([seen.n[None], seen.ns])
    u, v = x / seen.x, t / seen.y
    there = n > 0
    safe_v = np.where(there, v, 1.0)
    w = np.where(there, n / (safe_v * safe_v * (1.0 + (u - 1.0) * (u - 1.0))), 0.0)
    # Partings: all on the line; or flat up to each of the sizes.  Axes: point, parting, worker.
    edges = np.concatenate([np.zeros_like(u[:1]), u])
    small = u[:, None] <= edges[None]
    everything = w[:, None]
    flat = np.where(small, everything, 0.0)
    line = everything - flat
    points = range(len(u))
    flat_0, flat_v = _sum(flat[p] for p in points), _sum(flat[p] * v[p] for p in points)
    line_0, line_u = _sum(line[p] for p in points), _sum(line[p] * u[p] for p in points)
    line_v = _sum(line[p] * v[p] for p in points)
    on_line = line_0 > 0
    weight = np.where(on_line, line_0, 1.0)
    mean_u, mean_v = np.where(on_line, line_u / weight, 1.0), np.where(on_line, line_v / weight, 1.0)
    s_uu = _sum(line[p] * (u[p] - mean_u) * (u[p] - mean_u) for p in points)
    s_uv = _sum(line[p] * (u[p] - mean_u) * (v[p] - mean_v) for p in points)
    prior = mean_v / mean_u
    ridge = seen.noise / elasticity_spread
    ridge = ridge * ridge
    b = np.minimum(np.maximum((s_uv + ridge * prior) / (s_uu + ridge), 0.0), 2.0 * prior)
    a = mean_v - b * mean_u
    s = np.where(flat_0 > 0, flat_v / np.where(flat_0 > 0, flat_0, 1.0), 0.0)
    a, b = np.where(on_line, a, s), np.where(on_line, b, 0.0)
    misfit = _sum(w[p] * np.square(v[p] - np.maximum(s, a + b * u[p])) for p in points)
    cost = misfit / (seen.noise * seen.noise)
    cost[1:] += simplicity
    cost[1:][n == 0] = np.inf  # no such size
    best = cost.argmin(axis=0)[None]
    s, a, b = (np.take_along_axis(part, best, axis=0)[0] for part in (s, a, b))
    # Agree with the present size, as far as it is known.
    agree = 1.0 + (1.0 / np.maximum(np.maximum(s, a + b), 1e-6) - 1.0) * (seen.n / (seen.n + 1.0))
    s, a, b = s * agree, a * agree, b * agree
    edge = np.where(there, u, 0.0).max(axis=0)
    beyond = np.maximum(s, a + b * edge) / edge
    per_x = seen.y / seen.x
    return FittedTimes(s * seen.y, a * seen.y, b * per_x, np.maximum(beyond * per_x, _TINY))
