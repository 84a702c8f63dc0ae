"""The cadence of reports: every iteration while sizes change, more seldom once they have settled."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lbbsp.errors import ConfigurationError

__all__ = ["Cadence", "Pace"]


@dataclass(frozen=True, slots=True)
class Pace:
    """Reports are due every ``every`` iterations; ``settled`` decisions in a row have moved nothing."""

    every: int = 1
    settled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    r"""How often the workers report, so that measuring stays cheap against the steps.

    A report with its decision costs each step ``cost_s``: wake-ups, a small all-gather, a few vector operations.
    Beside steps of a second that is nothing, beside steps of 5 ms it is not.  Once ``patience`` decisions in a row
    have left the sizes alone, the distance n between reports is doubled, again and again, up to the least n with

        cost_s / (n t) <= max_overhead,

    t being the slowest worker's compute time and ``cost_s`` the dearest worker's cost.  A move, or a report that
    cannot be used, brings n back to 1.  What workers measure between reports is not lost: a report holds the mean
    over the iterations since the last one.

    Args:
        max_overhead: the fraction of the step time that reporting may cost when nothing moves; 0 lets n grow to
            ``longest``, infinity keeps it at 1.
        longest: n is never greater, iterations.
        patience: decisions without a move before n grows.

    Example:
        >>> cadence, pace = Cadence(max_overhead=0.01), Pace()
        >>> for _ in range(6):
        ...     pace = cadence.next(pace, settled=True, cost_s=2e-3, step_s=50e-3)
        >>> pace.every
        4
        >>> cadence.next(pace, settled=False, cost_s=2e-3, step_s=50e-3).every
        1
    """

    max_overhead: float = 0.005
    longest: int = 32
    patience: int = 3

    def __post_init__(self) -> None:
        if not self.max_overhead >= 0:
            raise ConfigurationError(
                f"max_overhead={self.max_overhead}: must be 0 or more, a fraction of the step time"
            )
        if self.longest < 1 or self.patience < 0:
            raise ConfigurationError(
                f"longest={self.longest}, patience={self.patience}: must be 1 or more and 0 or more iterations"
            )

    def next(self, pace: Pace, *, settled: bool, cost_s: float, step_s: float) -> Pace:
        """The pace after a decision: whether it left the sizes alone, and what reporting costs against a step.

        A cost or a time that is not known (NaN) keeps n at 1.
        """
        if not settled:
            return Pace()
        if pace.settled < self.patience:
            return Pace(pace.every, pace.settled + 1)
        allowed_s = self.max_overhead * step_s
        if not (cost_s > 0 and step_s > 0 and step_s < math.inf):
            most = 1
        elif cost_s >= allowed_s * self.longest:
            most = self.longest
        else:
            most = max(1, math.ceil(cost_s / allowed_s))
        return Pace(min(2 * pace.every, most), pace.settled + 1)
