"""A predictor and a policy of one's own, and a balancer that uses them.

OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 examples/own_policy.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import TensorDataset

from lbbsp import ConfigurationError, Policy, Predictor, Proportional
from lbbsp.core.allocate import apportion
from lbbsp.core.policy import Problem, Proposal
from lbbsp.core.predict import Observation
from lbbsp.core.time_models import LinearTimes
from lbbsp.core.types import Forecast, Reports
from lbbsp.torch import LoadBalancer


@dataclass(frozen=True, slots=True, kw_only=True)
class Median:
    """The median of each worker's last ``window`` speeds: a single stall leaves it alone."""

    window: int = 5

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigurationError(f"window={self.window}: must be 1 or more speeds")

    def init(self, workers: int) -> npt.NDArray[np.float64]:
        """The last speeds, shape ``(window, W)``; NaN where there is none yet."""
        return np.full((self.window, workers), np.nan)

    def step(self, state: npt.NDArray[np.float64], observation: Observation) -> npt.NDArray[np.float64]:
        moved = np.vstack([state[1:], observation.speed])
        return np.where(np.isnan(observation.speed), state, moved)

    def forecast(self, state: npt.NDArray[np.float64], *, steps: int = 1) -> Forecast:
        known = np.isfinite(state).any(axis=0)
        mean, spread = np.full(known.shape, np.nan), np.zeros(known.shape)
        mean[known] = np.nanmedian(state[:, known], axis=0)
        spread[known] = np.nanstd(state[:, known], axis=0)
        return Forecast(mean, spread)

    def dump(self, state: npt.NDArray[np.float64]) -> dict[str, list[float]]:
        """Finite numbers only: 0 stands for a speed that is not known yet."""
        return {f"speed_{i}": row.tolist() for i, row in enumerate(np.nan_to_num(state))}

    def load(self, saved: dict[str, list[float]]) -> npt.NDArray[np.float64]:
        speeds = np.array([saved[f"speed_{i}"] for i in range(self.window)], dtype=np.float64)
        return np.where(speeds > 0, speeds, np.nan)


@dataclass(frozen=True, slots=True)
class Halfway:
    """Go half of the way that another policy would go."""

    inner: Policy[Any]
    name: str = "halfway"

    @property
    def predictor(self) -> Predictor[Any]:
        return self.inner.predictor

    def init(self, problem: Problem) -> Any:
        return self.inner.init(problem)

    def propose(
        self, problem: Problem, state: Any, reports: Reports, current: npt.NDArray[np.int64]
    ) -> tuple[Proposal | None, Any]:
        proposal, state = self.inner.propose(problem, state, reports, current)
        if proposal is None:
            return None, state
        weights = np.maximum(current + proposal.sizes, 1e-9)  # apportion wants positive numbers
        sizes = apportion(weights, problem.global_batch_size, problem.bounds)
        times = LinearTimes(reports.speed)
        expected_s, before_s = float(times.time_s(sizes).max()), float(times.time_s(current).max())
        return Proposal(sizes, expected_s, before_s, f"half of the way: {proposal.detail}"), state


def train() -> None:
    model = DDP(torch.nn.Linear(4, 1))
    policy = Halfway(Proportional(predictor=Median()))
    balancer = LoadBalancer(model, global_batch_size=32, policy=policy)
    for (inputs,) in balancer.data_loader(TensorDataset(torch.randn(640, 4))):
        model(inputs).square().mean().backward()
    if balancer.rank == 0 and balancer.last_decision is not None:
        print(balancer.last_decision.allocation)
    balancer.close()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
