"""A measured profile of a device: seconds of a training step against the local batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lbbsp.core.arrays import FloatArray, IntArray, frozen
from lbbsp.errors import ConfigurationError

__all__ = ["Profile"]


@dataclass(frozen=True, eq=False)
class Profile:
    """Step times of one job on one device, linear between the sizes that were measured.

    Below the smallest size the time is held: a device that is not saturated gets no faster with fewer samples.
    Nothing is known above the largest size, which is taken as the device's limit (`most`).  The measurements are
    kept as they are, dips included.

    Args:
        job: what was trained.
        device: on what.
        sizes: samples, at least two, ascending.
        times_s: seconds a step, positive, one for each size.

    Raises:
        ConfigurationError: the above does not hold; the message names job, device and numbers.

    Example:
        >>> profile = Profile("resnet", "k80", [16, 32], [0.1, 0.2])
        >>> profile.time_s([8, 16, 24]).round(3).tolist(), profile.most
        ([0.1, 0.1, 0.15], 32)
    """

    job: str
    device: str
    sizes: npt.ArrayLike
    times_s: npt.ArrayLike

    def __post_init__(self) -> None:
        sizes, times = np.asarray(self.sizes), np.asarray(self.times_s, dtype=np.float64)
        name = f"profile of {self.job} on {self.device}"
        if sizes.ndim != 1 or sizes.size < 2 or sizes.shape != times.shape:
            raise ConfigurationError(
                f"{name}: {sizes.size} sizes and {times.size} times; give one time for each of 2 or more sizes"
            )
        if not (sizes[0] >= 1 and bool((np.diff(sizes) > 0).all())):
            raise ConfigurationError(f"{name}: sizes {sizes.tolist()} must ascend from 1 sample or more")
        if not bool((np.isfinite(times) & (times > 0)).all()):
            raise ConfigurationError(f"{name}: times {times.tolist()} must be positive and finite seconds")
        object.__setattr__(self, "sizes", frozen(sizes, np.int64))
        object.__setattr__(self, "times_s", frozen(times, np.float64))

    @property
    def most(self) -> int:
        """The largest size measured, samples."""
        return int(np.asarray(self.sizes)[-1])

    def time_s(self, sizes: npt.ArrayLike) -> FloatArray:
        """Seconds for each of ``sizes`` (samples)."""
        x: IntArray = np.asarray(sizes)
        return np.asarray(np.interp(x, np.asarray(self.sizes), np.asarray(self.times_s)))
