"""Synchronous training on a simulated cluster, sized by the engine, predictor and policy that ship.

The cluster is a `Truth`: it says how long each worker really takes for the samples it was given.  All workers
are simulated at once, as arrays of shape ``(W,)``; nothing of the balancer is imitated here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lbbsp.core.allocate import DeadBand, minmax
from lbbsp.core.arrays import frozen
from lbbsp.core.policy import Policy, Problem
from lbbsp.core.time_models import LinearTimes, TimeModels
from lbbsp.core.types import Bounds, FloatArray, IntArray, Reports
from lbbsp.engine import Decision, Engine, Forecaster, Gathered, Measured
from lbbsp.errors import ConfigurationError

__all__ = ["Clairvoyant", "Outcome", "SensedTruth", "SpeedTruth", "Truth", "simulate_bsp"]


class Truth(Protocol):
    """The true cluster."""

    @property
    def workers(self) -> int:
        """W."""
        ...

    def times_s(self, iteration: int, sizes: IntArray) -> FloatArray:
        """The true compute seconds of iteration ``iteration`` with ``sizes``, shape ``(W,)``.

        The same arguments must give the same times, however often and in whatever order they are asked for.
        """
        ...

    def models(self, iteration: int) -> TimeModels:
        """The time models of that iteration without noise, for the oracle."""
        ...


@runtime_checkable
class SensedTruth(Protocol):
    """A true cluster whose workers also sense their available CPU and memory."""

    def sensed(self, iteration: int) -> tuple[FloatArray, FloatArray]:
        """Available CPU and memory of that iteration, fractions, each of shape ``(W,)``."""
        ...


@dataclass(frozen=True, eq=False)
class SpeedTruth:
    """Workers whose time is linear in the batch, ``T_i^k(x) = x / v_i^k``: the paper's CPU clusters.

    Args:
        speeds: v_i^k, samples/s, shape ``(K, W)``.
        cpu: available CPU, fractions, shape ``(K, W)``; None where it is not sensed.
        memory: available memory, fractions, shape ``(K, W)``; None where it is not sensed.

    Raises:
        ConfigurationError: the shapes differ, or a speed is not positive and finite.

    Example:
        >>> truth = SpeedTruth([[2.0, 1.0], [1.0, 1.0]])
        >>> truth.times_s(0, np.array([4, 4])).tolist()
        [2.0, 4.0]
    """

    speeds: npt.ArrayLike
    cpu: npt.ArrayLike | None = None
    memory: npt.ArrayLike | None = None
    _v: FloatArray = field(init=False, repr=False)
    _cpu: FloatArray | None = field(init=False, repr=False)
    _memory: FloatArray | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        v = np.asarray(self.speeds, dtype=np.float64)
        if v.ndim != 2 or v.size == 0:
            raise ConfigurationError(
                f"speeds of shape {v.shape}: give (K, W), K >= 1 iterations of W >= 1 workers, in samples/s"
            )
        bad = np.argwhere(~(np.isfinite(v) & (v > 0)))
        if bad.size:
            k, i = (int(n) for n in bad[0])
            raise ConfigurationError(
                f"speed of worker {i} in iteration {k} is {v[k, i]} samples/s: must be positive and finite"
            )
        object.__setattr__(self, "_v", v)
        for name in ("cpu", "memory"):
            given = getattr(self, name)
            array = None if given is None else np.asarray(given, dtype=np.float64)
            if array is not None and array.shape != v.shape:
                raise ConfigurationError(f"{name} has shape {array.shape}, speeds {v.shape}: give the same")
            object.__setattr__(self, f"_{name}", array)

    @property
    def workers(self) -> int:
        """W."""
        return int(self._v.shape[1])

    @property
    def iterations(self) -> int:
        """K, for how many iterations speeds are known."""
        return int(self._v.shape[0])

    def _row(self, iteration: int) -> int:
        if not 0 <= iteration < self.iterations:
            raise ConfigurationError(
                f"iteration {iteration}: the speeds end after {self.iterations} iterations; "
                f"simulate {self.iterations} or fewer, or give a longer trace"
            )
        return iteration

    def times_s(self, iteration: int, sizes: IntArray) -> FloatArray:
        """``x / v`` seconds."""
        return np.asarray(sizes / self._v[self._row(iteration)])

    def models(self, iteration: int) -> TimeModels:
        """The linear models of the iteration's speeds."""
        return LinearTimes(self._v[self._row(iteration)])

    def sensed(self, iteration: int) -> tuple[FloatArray, FloatArray]:
        """Available CPU and memory; NaN where not given."""
        k, unknown = self._row(iteration), np.full(self.workers, math.nan)
        return (
            unknown if self._cpu is None else self._cpu[k],
            unknown if self._memory is None else self._memory[k],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """What a simulated synchronous run came to, K iterations of W workers.

    Args:
        sizes: x_i^k, samples, shape ``(K, W)``.
        compute_s: t_i^k, true compute seconds, shape ``(K, W)``.
        iteration_s: the slowest worker's time and the communication, shape ``(K,)``.
        oracle_s: the same for the clairvoyant split: the best whole sizes within the bounds for the true
            models of that very iteration, shape ``(K,)``.
        moves: how often the sizes changed.
        fallbacks: unusable reports.
        forecasts: the speed that was forecast for iteration k, samples/s, shape ``(K, W)``; NaN where none was.
    """

    sizes: IntArray
    compute_s: FloatArray
    iteration_s: FloatArray
    oracle_s: FloatArray
    moves: int
    fallbacks: int
    forecasts: FloatArray

    @property
    def total_s(self) -> float:
        """Seconds of the whole run."""
        return math.fsum(self.iteration_s)

    @property
    def efficiency(self) -> float:
        """Oracle time over actual time; 1 is the clairvoyant split."""
        return math.fsum(self.oracle_s) / self.total_s

    @property
    def idle_share(self) -> FloatArray:
        """Each worker's share of the run spent waiting for slower ones, shape ``(W,)``."""
        slowest = self.compute_s.max(axis=1, keepdims=True)
        return np.asarray((slowest - self.compute_s).sum(axis=0) / self.total_s)


class Clairvoyant:
    """The best whole sizes for the true models of each iteration; solved once where the models stay the same object.

    Args:
        truth: the cluster.
        global_batch_size: X, samples.
        bounds: of the sizes.
    """

    def __init__(self, truth: Truth, global_batch_size: int, bounds: Bounds) -> None:
        self._truth, self._x, self._bounds = truth, global_batch_size, bounds
        self._models: TimeModels | None = None
        self._solved: tuple[IntArray, float] = (np.zeros(0, dtype=np.int64), math.nan)

    def split(self, iteration: int) -> tuple[IntArray, float]:
        """The sizes, and the slowest worker's time with them, seconds."""
        models = self._truth.models(iteration)
        if models is not self._models:
            sizes = minmax(models, self._x, self._bounds)
            self._models, self._solved = models, (sizes, float(models.time_s(sizes).max()))
        return self._solved


def simulate_bsp(
    truth: Truth,
    policy: Policy[Any],
    *,
    global_batch_size: int,
    iterations: int,
    bounds: Bounds | None = None,
    lag: int = 1,
    warm_up: int = 0,
    dead_band: DeadBand | None = None,
    communication_s: float = 0.0,
    observe_only: bool = False,
    on_decision: Callable[[Decision], None] = lambda _: None,
) -> Outcome:
    """Run ``iterations`` iterations: ``max_i T_i^k(x_i^k)`` seconds each, and the communication.

    Args:
        truth: the cluster.
        policy: sizes the batches, with the predictor that it brings.
        global_batch_size: X, samples.
        iterations: K.
        bounds: of the sizes; by default at least one sample each.
        lag: L.
        warm_up: first iterations whose reports decide nothing; a simulated cluster needs none.
        dead_band: by default the engine's.
        communication_s: seconds an iteration, whatever the split.
        observe_only: propose but never move.
        on_decision: called with each decision.

    Raises:
        ConfigurationError: ``iterations`` is less than 1, the bounds are for another number of workers, or the
            truth ends before the run.
        InfeasibleBoundsError: no split of the global batch satisfies the bounds.

    Example:
        >>> from lbbsp.core.policy import Proportional
        >>> truth = SpeedTruth(np.tile([3.0, 1.0], (50, 1)))
        >>> outcome = simulate_bsp(truth, Proportional(), global_batch_size=40, iterations=50)
        >>> outcome.sizes[0].tolist(), outcome.sizes[1].tolist(), outcome.moves
        ([20, 20], [30, 10], 1)
    """
    if iterations < 1:
        raise ConfigurationError(f"iterations={iterations}: must be 1 or more")
    if not (math.isfinite(communication_s) and communication_s >= 0):
        raise ConfigurationError(f"communication_s={communication_s}: must be 0 or more seconds")
    workers = truth.workers
    bounds = bounds or Bounds.default(workers, global_batch_size)
    if bounds.workers != workers:
        raise ConfigurationError(f"bounds of {bounds.workers} workers for a cluster of {workers}; give one entry each")
    engine = Engine(
        Problem(global_batch_size, bounds),
        policy,
        lag=lag,
        warm_up=warm_up,
        dead_band=dead_band,
        observe_only=observe_only,
    )
    forecaster = Forecaster(policy.predictor, workers=workers, warm_up=warm_up, lag=lag)
    shape = (iterations, workers)
    sizes, compute_s, forecasts = np.zeros(shape, dtype=np.int64), np.zeros(shape), np.full(shape, np.nan)
    iteration_s, oracle_s = np.zeros(iterations), np.zeros(iterations)
    unknown, moves, now_s = frozen(np.full(workers, np.nan), np.float64), 0, 0.0
    clairvoyant = Clairvoyant(truth, global_batch_size, bounds)
    sensing = truth if isinstance(truth, SensedTruth) else None
    for k in range(iterations):
        x = engine.allocation(k).sizes
        sizes[k], compute_s[k] = x, truth.times_s(k, x)
        iteration_s[k] = compute_s[k].max() + communication_s
        oracle_s[k] = clairvoyant.split(k)[1] + communication_s
        now_s += iteration_s[k]
        cpu, memory = sensing.sensed(k) if sensing else (unknown, unknown)
        mean, spread = forecaster.measured(Measured(k, x.astype(np.float64), compute_s[k], cpu, memory))
        if k + lag < iterations:
            forecasts[k + lag] = mean
        reports = Reports(
            iteration=np.full(workers, k),
            size=x,
            compute_s=compute_s[k],
            speed=mean,
            spread=spread,
            cpu=cpu,
            memory=memory,
            checksum=np.full(workers, engine.checksum),
            cost_s=np.zeros(x.size),
        )
        decision = engine.handle(Gathered(k, reports, now_s))
        moves += decision.moved
        on_decision(decision)
    return Outcome(
        sizes=sizes,
        compute_s=compute_s,
        iteration_s=iteration_s,
        oracle_s=oracle_s,
        moves=moves,
        fallbacks=engine.fallbacks,
        forecasts=forecasts,
    )
