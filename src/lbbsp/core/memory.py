"""How much memory a batch needs, and with that the largest batch that is safe: fitted from above.

A balancer that gives the fastest worker more samples finds the end of its memory by running into it, unless it
knows beforehand.  What is known is few: the memory at rest, and the peak at each size that has been run.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from lbbsp.errors import ConfigurationError

__all__ = ["PeakState", "UpperFit"]

_ENOUGH_SIZES = 3
_ENOUGH_SPAN = 1.25


@dataclass(frozen=True, slots=True)
class PeakState:
    """What has been seen of one worker's memory.

    Args:
        resting_bytes: held between iterations, where no sample is in work; the most seen.
        sizes: sizes run whose peak is known, ascending, samples.
        peaks_bytes: the highest peak at each of them.
        largest: the largest size run, samples; 0 before the first.
    """

    resting_bytes: float = 0.0
    sizes: tuple[int, ...] = ()
    peaks_bytes: tuple[float, ...] = ()
    largest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpperFit:
    r"""An affine upper bound ``M(x) = a + b x`` of the peak, and the cap that follows from it.

    The slope b is the median of the slopes between all pairs of points (Theil and Sen), which a few odd peaks (a
    search for the best convolution, a cache that fills) do not move; a is then the least with which no peak lies
    above the line.  While fewer than three sizes are known, or they lie within a quarter of one another, the memory at
    rest counts as the peak of a batch of 0: it is less than a, so that slope errs towards too much memory.

    The cap is ``floor((limit (1 - margin) - a) / b)``, at most ``reach`` times the largest size run, beyond which no
    line is trusted, and never less than the largest size run, which did fit: so learned caps alone never make a
    run infeasible.

    Args:
        margin: fraction of the limit to leave free, in [0, 1).
        reach: how far beyond the largest size run the line is trusted; more than 1.
        backoff: after running out of memory at x, the cap is ``backoff x`` at most; in (0, 1).
        keep: how many sizes to remember; the smallest are forgotten first.

    Raises:
        ConfigurationError: a value is out of its range.

    Source: H. Theil, "A rank-invariant method of linear and polynomial regression analysis", 1950; P. K. Sen, JASA
    63(324), 1968, for the slope.

    Example:
        >>> fit, state = UpperFit(margin=0.0), PeakState()
        >>> for size, peak in [(16, 2.6e9), (20, 3.0e9), (32, 4.2e9)]:  # 1 GB and 0.1 GB a sample
        ...     state = fit.step(state, size=size, peak_bytes=peak, resting_bytes=0.8e9)
        >>> fit.cap(state, limit_bytes=6.01e9)
        50.0
    """

    margin: float = 0.1
    reach: float = 2.0
    backoff: float = 0.8
    keep: int = 16

    def __post_init__(self) -> None:
        if not 0 <= self.margin < 1:
            raise ConfigurationError(f"margin={self.margin}: must be a fraction of the memory, in [0, 1)")
        if not 1 < self.reach < math.inf:
            raise ConfigurationError(f"reach={self.reach}: must be more than 1")
        if not 0 < self.backoff < 1:
            raise ConfigurationError(f"backoff={self.backoff}: must lie in (0, 1)")
        if self.keep < _ENOUGH_SIZES:
            raise ConfigurationError(f"keep={self.keep}: must be {_ENOUGH_SIZES} sizes or more")

    def step(
        self, state: PeakState, *, size: int, peak_bytes: float | None, resting_bytes: float | None = None
    ) -> PeakState:
        """A batch of ``size`` samples has been run.

        Args:
            state: before it.
            size: samples.
            peak_bytes: the most memory held meanwhile; None where only an earlier, higher peak is known.
            resting_bytes: memory held before it; None if not known.
        """
        known = dict(zip(state.sizes, state.peaks_bytes, strict=True))
        if peak_bytes is not None and size > 0:
            known[size] = max(known.get(size, 0.0), float(peak_bytes))
        sizes = sorted(known)[-self.keep :]
        return PeakState(
            resting_bytes=max(state.resting_bytes, float(resting_bytes or 0.0)),
            sizes=tuple(sizes),
            peaks_bytes=tuple(known[x] for x in sizes),
            largest=max(state.largest, size),
        )

    def line(self, state: PeakState) -> tuple[float, float]:
        """``(a, b)``, bytes and bytes a sample; ``(nan, nan)`` while nothing is known."""
        points = list(zip(state.sizes, state.peaks_bytes, strict=True))
        if not points:
            return math.nan, math.nan
        if len(points) < _ENOUGH_SIZES or state.sizes[-1] < _ENOUGH_SPAN * state.sizes[0]:
            # A peak below the rest can only mean that the rest has grown since.
            points.insert(0, (0, min(state.resting_bytes, points[0][1])))
        slopes = [(q[1] - p[1]) / (q[0] - p[0]) for i, p in enumerate(points) for q in points[i + 1 :]]
        per_sample = max(0.0, statistics.median(slopes))
        return max(peak - per_sample * size for size, peak in points), per_sample

    def cap(self, state: PeakState, *, limit_bytes: float) -> float:
        """The largest safe size, samples; infinite while nothing is known.

        Args:
            state: what has been seen.
            limit_bytes: the most that this worker can hold.
        """
        fixed, per_sample = self.line(state)
        if math.isnan(fixed) or math.isnan(limit_bytes):
            return math.inf
        room, most = limit_bytes * (1.0 - self.margin) - fixed, self.reach * state.largest
        fits = most if room >= per_sample * most else room / per_sample if per_sample > 0 else 0.0
        return float(max(state.largest, math.floor(fits)))

    def cap_after_failure(self, state: PeakState, *, size: int, limit_bytes: float = math.nan) -> int:
        """The cap after a batch of ``size`` samples ran out of memory; 0 where not even one sample fits.

        It is below ``size``: what the line says if that is less, but no less than a smaller size that has been run.
        """
        most = min(math.floor(self.backoff * size), size - 1)
        smaller = [x for x in (*state.sizes, state.largest) if x < size]
        fixed, per_sample = self.line(state)
        if per_sample > 0 and not math.isnan(limit_bytes):
            most = min(most, math.floor((limit_bytes * (1.0 - self.margin) - fixed) / per_sample))
        return max(most, *smaller, 0) if smaller else max(most, 0)
