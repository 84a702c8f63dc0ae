"""BSP and LB-BSP: synchronous training, sized by any policy of the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lbbsp.core.allocate import DeadBand
from lbbsp.core.policy import Equal, Policy
from lbbsp.engine import Decision
from lbbsp.sim.bsp import simulate_bsp
from lbbsp.sim.schemes.base import Job, Timeline, synchronous

__all__ = ["Balanced", "Bsp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced:
    """LB-BSP: `simulate_bsp` with the shipped engine.

    Args:
        policy: sizes the batches.
        lag: L.
        dead_band: by default the engine's.
        label: the scheme's name; by default the policy's.
        on_decision: called with each decision.

    Source: Chen et al., SoCC 2020, section 3.
    """

    policy: Policy[Any]
    lag: int = 1
    dead_band: DeadBand | None = None
    label: str = ""
    on_decision: Callable[[Decision], None] = lambda _: None

    @property
    def name(self) -> str:
        """The label, or the policy's name."""
        return self.label or f"lb-bsp/{self.policy.name}"

    def run(self, job: Job) -> Timeline:
        """Simulate the job."""
        outcome = simulate_bsp(
            job.truth,
            self.policy,
            global_batch_size=job.global_batch_size,
            iterations=job.iterations,
            bounds=job.problem.bounds,
            lag=self.lag,
            dead_band=self.dead_band,
            communication_s=job.communication_s,
            on_decision=self.on_decision,
        )
        return synchronous(self.name, job, outcome.sizes, outcome.iteration_s, outcome=outcome)


@dataclass(frozen=True, slots=True)
class Bsp:
    """Plain bulk-synchronous training with the equal split.

    Source: L. G. Valiant, "A bridging model for parallel computation", CACM 33(8), 1990.
    """

    name: str = "bsp"

    def run(self, job: Job) -> Timeline:
        """Simulate the job."""
        return Balanced(policy=Equal(), label=self.name).run(job)
