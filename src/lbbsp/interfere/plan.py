"""Which worker goes on which core with which nice, and who competes there: pure arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from lbbsp.errors import ConfigurationError

__all__ = ["LARGEST_NICE", "Placement", "place"]

LARGEST_NICE = 19
# Linux' sched_prio_to_weight for nice 0 to 19 (kernel/sched/core.c): busy processes on one core get CPU time
# in proportion to these.
_WEIGHTS = (1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15)
_MOST_COMPETITORS = 4  # on a core
_GOOD_ENOUGH = 0.03  # relative, against the best; a level of nice is 0.25
_TOO_FAR = 0.25


@dataclass(frozen=True, slots=True)
class Placement:
    """Where everybody goes.

    Args:
        cores: of each worker.
        nices: of each worker.
        competitors: (core, nice) of each competing busy process.
        shares: of each worker by weight when all are busy, in cores.
    """

    cores: tuple[int, ...]
    nices: tuple[int, ...]
    competitors: tuple[tuple[int, int], ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Core:
    """The same for one core; ``error`` is the largest relative error of a share."""

    nices: list[int]
    competitors: list[int]
    shares: list[float]
    error: float


def place(
    shares: Sequence[float],
    cores: Sequence[int],
    *,
    own_nice: int = 0,
    least_nices: Sequence[int],
    before: Sequence[int | None],
) -> Placement:
    r"""Place workers so that their shares come out in the asked proportion.

    Workers are sorted by share and dealt to the cores in runs, fast ones together.  (Mixed cores could meet
    the shares too, but a worker that waits leaves its time to its core's others; unequal *cores* stay so.)
    With ``S_c`` the sum of the shares on core c, the shares are scaled by ``1 / max(1, max_c S_c)``, and
    competing processes take what is left.  On a core, worker i gets
    :math:`w_i / (\sum_j w_j + \sum_k w_k)` over its workers j and competitors k, where w is the kernel's
    weight for a nice.  The lowest nices that come close are taken, to leave room for later changes.

    Args:
        shares: of W workers, in cores, at most 1.
        cores: numbers of the cores to use.
        own_nice: the launcher's, which the competitors cannot go below.
        least_nices: of each worker, the nice that it cannot go below, shape ``(W,)``.
        before: the core of each worker so far, to move as few as can be; None where it has none.

    Raises:
        ConfigurationError: a share would be missed by more than 25 %, as no nice above 19 is left.

    Example:
        >>> placement = place([0.5, 0.5], [0, 1], least_nices=[0, 0], before=[None, None])
        >>> placement.cores, placement.nices, placement.competitors, placement.shares
        ((0, 1), (0, 0), ((0, 0), (1, 0)), (0.5, 0.5))
    """
    runs = _runs(shares, len(cores))
    scale = 1 / max(1.0, *(sum(shares[worker] for worker in run) for run in runs))
    core_of: dict[int, int] = {}
    nice_of: dict[int, int] = {}
    share_of: dict[int, float] = {}
    competitors: list[tuple[int, int]] = []
    for run, core in zip(runs, _cores_for(runs, cores, before), strict=True):
        wanted = [scale * shares[worker] for worker in run]
        plan = _fill(wanted, [least_nices[worker] for worker in run], own_nice)
        for worker, want, nice, share in zip(run, wanted, plan.nices, plan.shares, strict=True):
            if abs(share / want - 1) > _TOO_FAR:
                raise ConfigurationError(
                    f"share {shares[worker]:g} of worker {worker}: it would come to {share:.3g} instead of "
                    f"{want:.3g} of a core, since nice ends at {LARGEST_NICE} and without root never falls; "
                    "ask for shares closer to each other, start the workers anew, or use way='quota'"
                )
            core_of[worker], nice_of[worker], share_of[worker] = core, nice, share
        competitors.extend((core, nice) for nice in plan.competitors)
    workers = range(len(shares))
    return Placement(
        tuple(core_of[worker] for worker in workers),
        tuple(nice_of[worker] for worker in workers),
        tuple(competitors),
        tuple(share_of[worker] for worker in workers),
    )


def _runs(shares: Sequence[float], cores: int) -> list[list[int]]:
    """The workers in falling order of share, cut into equal runs; the fast runs are the shorter ones."""
    order = sorted(range(len(shares)), key=lambda worker: -shares[worker])
    used = min(cores, len(order))
    ends = [len(order) * run // used for run in range(used + 1)]
    return [order[start:end] for start, end in itertools.pairwise(ends)]


def _cores_for(runs: list[list[int]], cores: Sequence[int], before: Sequence[int | None]) -> list[int]:
    """A core for each run: the free one where most of its workers are."""
    free, chosen = list(cores), list[int]()
    for run in runs:
        there = [before[worker] for worker in run]
        core = max(free, key=there.count)
        free.remove(core)
        chosen.append(core)
    return chosen


def _fill(wanted: list[float], least_nices: list[int], own_nice: int) -> _Core:
    """The nices of one core, for a nice of its fastest worker as low as can be."""
    plans = [_fill_from(nice, wanted, least_nices, own_nice) for nice in range(LARGEST_NICE + 1)]
    best = min(plan.error for plan in plans)
    return next(plan for plan in plans if plan.error <= best + _GOOD_ENOUGH)


def _fill_from(fastest_nice: int, wanted: list[float], least_nices: list[int], own_nice: int) -> _Core:
    nices = [
        max(least, _nearest_nice(_WEIGHTS[fastest_nice] * want / max(wanted)))
        for want, least in zip(wanted, least_nices, strict=True)
    ]
    workers_weight = sum(_WEIGHTS[nice] for nice in nices)
    left = 1 - sum(wanted)
    competitors = _compose(workers_weight * left / (1 - left), own_nice)
    weight = workers_weight + sum(_WEIGHTS[nice] for nice in competitors)
    shares = [_WEIGHTS[nice] / weight for nice in nices]
    error = max(abs(share / want - 1) for share, want in zip(shares, wanted, strict=True))
    return _Core(nices, competitors, shares, error)


def _compose(weight: float, own_nice: int) -> list[int]:
    """The nices of the fewest processes that together weigh about ``weight``."""
    full = min(int(weight / _WEIGHTS[own_nice]), _MOST_COMPETITORS)
    rest = weight - full * _WEIGHTS[own_nice]
    if full == _MOST_COMPETITORS or rest < _WEIGHTS[LARGEST_NICE] / 2:
        return [own_nice] * full
    return [*[own_nice] * full, max(own_nice, _nearest_nice(rest))]


def _nearest_nice(weight: float) -> int:
    """The nice whose weight differs least from ``weight``, in proportion."""
    return min(range(LARGEST_NICE + 1), key=lambda nice: max(_WEIGHTS[nice] / weight, weight / _WEIGHTS[nice]))
