"""The policy contract as a test class to inherit."""

from __future__ import annotations

import copy
import json
from typing import Any, ClassVar

import numpy as np

from lbbsp.core.allocate import equal_split
from lbbsp.core.policy import Policy, Problem, Resumable
from lbbsp.core.types import Bounds, Report, Reports

__all__ = ["PolicyContract"]


class PolicyContract:
    """Inherit from it in a test module, under a name that starts with Test, and set ``policy``."""

    policy: ClassVar[Policy[Any]]

    def _problems(self) -> list[Problem]:
        """Sizes, bounds and granularities of many kinds."""
        rng = np.random.default_rng(0)
        problems = [Problem(64 * w, Bounds.default(w, 64 * w)) for w in (1, 2, 3, 17)]
        problems.append(Problem(101, Bounds.default(5, 101)))
        for w in (2, 4, 9):
            lo, hi = 8 * rng.integers(0, 3, w), 8 * rng.integers(5, 12, w)
            problems.append(Problem(int(lo.sum() + hi.sum()) // 16 * 8, Bounds(lo, hi, 8)))
        return problems

    def _reports(self, problem: Problem, sizes: Any, k: int) -> Reports:
        """What workers of noisy, unequal speed report in iteration k."""
        rng = np.random.default_rng([problem.workers, k])
        speeds = np.linspace(10, 90, problem.workers) * np.exp(0.1 * rng.standard_normal(problem.workers))
        rows = np.full((problem.workers, Report.WIDTH), np.nan)
        rows[:, 0], rows[:, 1], rows[:, 2] = k, np.maximum(sizes, 1), np.maximum(sizes, 1) / speeds
        rows[:, 3], rows[:, 4], rows[:, 7] = speeds, 0.1 * speeds, 0
        return Reports.from_rows(rows)

    def test_proposals_keep_the_sum_and_the_bounds(self) -> None:
        """I1, over a run in which each proposal is taken."""
        for problem in self._problems():
            state, sizes = self.policy.init(problem), equal_split(problem.global_batch_size, problem.bounds)
            for k in range(25):
                proposal, state = self.policy.propose(problem, state, self._reports(problem, sizes, k), sizes)
                if proposal is None:
                    continue
                assert problem.bounds.admit(proposal.sizes, problem.global_batch_size)
                assert proposal.detail
                assert np.isfinite([proposal.expected_s, proposal.expected_before_s]).all()
                sizes = proposal.sizes

    def test_equal_inputs_give_equal_bits(self) -> None:
        """I5: two ranks propose alike, and neither changes the state that it was given."""
        for problem in self._problems():
            states = [self.policy.init(problem), self.policy.init(problem)]
            sizes = equal_split(problem.global_batch_size, problem.bounds)
            for k in range(10):
                reports = self._reports(problem, sizes, k)
                before = copy.deepcopy(states[0])
                one, states[0] = self.policy.propose(problem, states[0], reports, sizes)
                two, states[1] = self.policy.propose(problem, states[1], reports, sizes)
                again, _ = self.policy.propose(problem, before, reports, sizes)
                for other in (two, again):
                    assert (one is None) == (other is None)
                    if one is not None and other is not None:
                        assert one.sizes.tolist() == other.sizes.tolist()
                        assert (one.expected_s, one.expected_before_s) == (
                            other.expected_s,
                            other.expected_before_s,
                        )
                sizes = sizes if one is None else one.sizes

    def test_what_a_checkpoint_holds_is_the_whole_state(self) -> None:
        """A policy with `dump` and `load` goes on after a restart as if there had been none."""
        if not isinstance(self.policy, Resumable):
            return
        for problem in self._problems():
            state, sizes = self.policy.init(problem), equal_split(problem.global_batch_size, problem.bounds)
            for k in range(20):
                reports = self._reports(problem, sizes, k)
                restored = self.policy.load(json.loads(json.dumps(self.policy.dump(state), allow_nan=False)))
                here, state = self.policy.propose(problem, state, reports, sizes)
                there, _ = self.policy.propose(problem, restored, reports, sizes)
                assert (here is None) == (there is None)
                if here is not None and there is not None:
                    assert here.sizes.tolist() == there.sizes.tolist()
                    assert (here.expected_s, here.detail) == (there.expected_s, there.detail)
                    sizes = here.sizes
