"""The dead band: no allocation moves unless the expected gain exceeds the cost of moving (I7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lbbsp.errors import ConfigurationError

__all__ = ["DeadBand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadBand:
    """Move only if the expected slowest time falls by more than a fraction, and by what moving costs.

    Args:
        min_gain: least relative gain, ``(before - after) / before``; 0 moves for any gain.
        move_cost_s: seconds that one move costs (a recompile, a cuDNN search).
        horizon: iterations over which a move's cost has to be earned back.

    Raises:
        ConfigurationError: a value is negative or not finite.
    """

    min_gain: float = 0.02
    move_cost_s: float = 0.0
    horizon: int = 100

    def __post_init__(self) -> None:
        if not 0 <= self.min_gain < 1:
            raise ConfigurationError(f"min_gain={self.min_gain}: must lie in [0, 1), a fraction of the time")
        if not (math.isfinite(self.move_cost_s) and self.move_cost_s >= 0):
            raise ConfigurationError(f"move_cost_s={self.move_cost_s}: must be 0 or more seconds")
        if self.horizon < 1:
            raise ConfigurationError(f"horizon={self.horizon}: must be 1 or more iterations")

    def worth(self, before_s: float, after_s: float) -> bool:
        """Whether going from ``before_s`` to ``after_s`` expected seconds an iteration is worth a move."""
        gain_s = before_s - after_s
        return gain_s > self.min_gain * before_s and gain_s * self.horizon > self.move_cost_s
