"""Eight mixed GPUs for the tuner benchmark: measured profiles, with noise, drift, co-located jobs and a step change."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lbbsp.core.arrays import FloatArray
from lbbsp.errors import ConfigurationError
from lbbsp.sim.profiles.gavel import read_gavel
from lbbsp.sim.profiles.pollux import read_pollux
from lbbsp.sim.profiles.profile import Profile
from lbbsp.sim.profiles.truth import ProfileTruth

__all__ = ["CHANGES", "Cluster", "changed", "mixed_clusters"]

CHANGES = ("steady", "drift", "co-located", "step")
"""What happens to the cluster during a run."""

_GAVEL_MIX = ("k80", "k80", "k80", "p100", "p100", "p100", "v100", "v100")
_T4_SLOWDOWNS = (1.0, 1.0, 1.0, 1.0, 1.5, 1.5, 2.5, 2.5)
"""For profiles of one kind of device: how much slower each of the eight is than the one that was measured."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Eight GPUs that train one job.

    Args:
        name: job and source.
        profiles: one a worker.
        slowdowns: lasting factors on the profiles' times, shape ``(W,)``.
        colocation: the factor by which another job on the device lengthens a step.
        global_batch_size: X, samples: for each worker 1.25 times the median size that was measured.
    """

    name: str
    profiles: tuple[Profile, ...]
    slowdowns: FloatArray
    colocation: float
    global_batch_size: int


def mixed_clusters(folder: Path) -> list[Cluster]:
    """A cluster for each job of the profiles in ``folder/gavel`` and ``folder/pollux``.

    Three K80, three P100 and two V100 for a Gavel job measured on all three; eight T4 for a Pollux job, of which
    four run at the speed that was measured and four slower, as shared or older devices would.

    Raises:
        ConfigurationError: neither source is there, or a file cannot be read.
    """
    clusters, gavel, pollux = [], folder / "gavel" / "oracle_throughputs.json", folder / "pollux"
    if not gavel.exists() and not pollux.is_dir():
        raise ConfigurationError(f"{folder}: holds neither gavel/oracle_throughputs.json nor pollux/; see the manual")
    if gavel.exists():
        read = read_gavel(gavel)
        for job in sorted({job for job, _ in read.profiles}):
            devices = read.devices(job)
            if set(_GAVEL_MIX) <= devices.keys():
                factors = [f for kind in sorted(devices) for f in read.slowdowns[job, kind]]
                colocation = float(np.median(factors)) if factors else 2.0
                mix = tuple(devices[kind] for kind in _GAVEL_MIX)
                clusters.append(_cluster(f"{job}, gavel", mix, np.ones(len(mix)), colocation))
    if pollux.is_dir():
        for job, profile in read_pollux(pollux).items():
            mix = (profile,) * len(_T4_SLOWDOWNS)
            clusters.append(_cluster(f"{job}, pollux", mix, np.array(_T4_SLOWDOWNS), 2.0))
    return clusters


def _cluster(name: str, profiles: tuple[Profile, ...], slowdowns: FloatArray, colocation: float) -> Cluster:
    median = float(np.median(np.concatenate([np.asarray(p.sizes) for p in profiles])))
    return Cluster(name, profiles, slowdowns, colocation, max(1, int(1.25 * median)) * len(profiles))


def changed(cluster: Cluster, change: str, *, iterations: int, noise: float, seed: int) -> ProfileTruth:
    """The cluster over a run.

    ``steady`` nothing but noise; ``drift`` worker 3 slows by 30%, evenly, over the middle half of the run;
    ``co-located`` another job shares worker 7's device during the third quarter; ``step`` worker 5 takes 1.8 times as
    long from the middle on (a thermal limit).

    Raises:
        ConfigurationError: there is no such change.
    """
    if change not in CHANGES:
        raise ConfigurationError(f"change={change!r}: choose one of {', '.join(CHANGES)}")
    factors = np.tile(cluster.slowdowns, (iterations, 1))
    at = np.arange(iterations) / iterations
    if change == "drift":
        factors[:, 3] *= 1 + 0.3 * np.clip((at - 0.25) / 0.5, 0, 1)
    elif change == "co-located":
        factors[(at >= 0.5) & (at < 0.75), 7] *= cluster.colocation
    elif change == "step":
        factors[at >= 0.5, 5] *= 1.8
    return ProfileTruth(cluster.profiles, noise=noise, factors=factors, seed=seed)
