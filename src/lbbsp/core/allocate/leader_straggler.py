"""The paper's step for GPU clusters: some samples from the slowest worker to the fastest with memory to spare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lbbsp.core.types import Bounds, FloatArray, IntArray

__all__ = ["Step", "leader_straggler"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the rule.

    Args:
        straggler: the worker that takes longest.
        leader: the one that takes least and can take more; None if none can.
        spread: ``(t_straggler - t_leader) / t_straggler``; 0 without a leader.
        moved: samples that can go from one to the other, at most what was asked for.
        sizes: those after the step, shape ``(W,)``.
    """

    straggler: int
    leader: int | None
    spread: float
    moved: int
    sizes: IntArray


def leader_straggler(
    times_s: FloatArray, sizes: IntArray, step: int, bounds: Bounds, spare: npt.NDArray[np.bool_] | None = None
) -> Step:
    """Move ``step`` samples from the straggler to the leader, in whole granules, as far as the bounds let it.

    Args:
        times_s: each worker's mean time, shape ``(W,)``.
        sizes: those in force, shape ``(W,)``; they keep the bounds.
        step: samples, rounded up to a granule.
        bounds: of the sizes.
        spare: which workers have memory to spare; all by default.

    Source: Chen et al., SoCC 2020, section 3.4 (GPU clusters).

    Example:
        >>> leader_straggler(np.array([0.3, 0.1, 0.2]), np.array([8, 8, 8]), 2, Bounds.default(3, 24)).sizes.tolist()
        [6, 10, 8]
    """
    g = bounds.granularity
    straggler = int(times_s.argmax())
    room = (bounds.hi - sizes) // g * g
    free = (room > 0) if spare is None else (room > 0) & spare
    free[straggler] = False
    if not free.any():
        return Step(straggler, None, 0.0, 0, sizes)
    leader = int(np.where(free, times_s, np.inf).argmin())
    to_give = int(sizes[straggler] - bounds.lo[straggler]) // g * g
    moved = min(-(-step // g) * g, to_give, int(room[leader]))
    after = sizes.copy()
    after[straggler] -= moved
    after[leader] += moved
    spread = float((times_s[straggler] - times_s[leader]) / times_s[straggler])
    return Step(straggler, leader, spread, moved, after)
