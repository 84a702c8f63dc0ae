"""SSP: as ASP, but nobody runs more than s iterations ahead of the slowest."""

from __future__ import annotations

from dataclasses import dataclass

from lbbsp.errors import ConfigurationError
from lbbsp.sim.schemes._server import run_server
from lbbsp.sim.schemes.base import Job, Timeline

__all__ = ["Ssp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssp:
    """A worker waits before its iteration c until all have ended iteration ``c - s - 1``.

    Args:
        staleness: s >= 0, iterations.

    Raises:
        ConfigurationError: s is negative.

    Source: Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server",
    NIPS 2013.
    """

    staleness: int = 3

    def __post_init__(self) -> None:
        if self.staleness < 0:
            raise ConfigurationError(f"staleness={self.staleness}: must be 0 or more iterations")

    @property
    def name(self) -> str:
        """With s."""
        return f"ssp-{self.staleness}"

    def run(self, job: Job) -> Timeline:
        """Simulate the job."""
        return run_server(self.name, job, self.staleness)
