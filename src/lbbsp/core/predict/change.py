"""Change points: a speed that has changed for good is told from an outlier by the second one."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from lbbsp.core.predict.base import SpreadState
from lbbsp.core.types import FloatArray

__all__ = ["ChangeState", "watch"]

FAR = 4.0
"""Spreads from the forecast at which a speed is suspect."""

LEAST = 0.05
"""A speed closer to the forecast than this, relatively, is never suspect."""

CATCH_UP = 2.0
"""Speeds after a change until the predictors themselves are trusted again."""


@dataclass(frozen=True, slots=True)
class ChangeState:
    """Of W workers, each of shape ``(W,)``; speeds in samples/s.

    Args:
        suspect: the last speed if it was suspect, else 0.
        base: the forecast that it was far from.
        reach: the relative distance that counted as far then.
        total: sum of the speeds since a change.
        count: their number; 0 where there was no change lately.
    """

    suspect: FloatArray
    base: FloatArray
    reach: FloatArray
    total: FloatArray
    count: FloatArray

    @classmethod
    def init(cls, workers: int) -> ChangeState:
        """No suspicion."""
        zero = np.zeros(workers)
        return cls(zero, zero, zero, zero, zero)

    @property
    def just_now(self) -> npt.NDArray[np.bool_]:
        """Where the last speed confirmed a change."""
        return np.asarray(self.count == 2)

    def applied(self, mean: FloatArray) -> FloatArray:
        """``mean``, or the mean of the speeds since a change where there was one lately."""
        return np.where(self.count > 0, self.total / np.maximum(self.count, 1.0), mean)

    def dump(self) -> dict[str, list[float]]:
        """Plain numbers."""
        return {f.name: getattr(self, f.name).tolist() for f in fields(self)}

    @classmethod
    def load(cls, saved: dict[str, list[float]]) -> ChangeState:
        """From `dump`."""
        return cls(**{f.name: np.array(saved[f.name], dtype=np.float64) for f in fields(cls)})


def watch(state: ChangeState, speed: FloatArray, forecast: FloatArray, errors: SpreadState) -> ChangeState:
    """Take in a speed, with what had been forecast for it and the errors so far; NaN leaves a worker as it is.

    A speed farther from its forecast than `FAR` spreads is suspect.  If the next one is as far from that forecast, on
    the same side, the speed has changed for good; if not, it was an outlier.
    """
    known = np.isfinite(speed) & np.isfinite(forecast)
    v, f = np.where(known, speed, 1.0), np.where(known, forecast, 1.0)
    reach = FAR * np.maximum(np.sqrt(errors.square), LEAST / FAR)
    far = known & (np.abs(v / f - 1.0) > reach) & (errors.count > 2)
    base = np.where(state.suspect > 0, state.base, 1.0)
    again = (np.abs(v / base - 1.0) > state.reach) & ((v > base) == (state.suspect > base))
    confirmed = known & (state.suspect > 0) & again
    newly = far & ~confirmed
    going_on = known & ~confirmed & (state.count > 0)
    over = state.count >= CATCH_UP
    total = np.where(confirmed, state.suspect + v, np.where(going_on, state.total + v, state.total))
    count = np.where(confirmed, 2.0, np.where(going_on, state.count + 1.0, state.count))
    return ChangeState(
        suspect=np.where(known, np.where(newly, v, 0.0), state.suspect),
        base=np.where(newly, f, state.base),
        reach=np.where(newly, reach, state.reach),
        total=np.where(going_on & over, 0.0, total),
        count=np.where(going_on & over, 0.0, count),
    )
