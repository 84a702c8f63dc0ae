"""ASP: workers run on their own, and nobody waits."""

from __future__ import annotations

from dataclasses import dataclass

from lbbsp.sim.schemes._server import run_server
from lbbsp.sim.schemes.base import Job, Timeline

__all__ = ["Asp"]


@dataclass(frozen=True, slots=True)
class Asp:
    """Each gradient is applied as it arrives; fast workers contribute more, and gradients may be very stale.

    Source: J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012 (Downpour SGD).
    """

    name: str = "asp"

    def run(self, job: Job) -> Timeline:
        """Simulate the job."""
        return run_server(self.name, job)
