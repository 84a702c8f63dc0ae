"""What observing says that balancing would gain is what the balanced run gains."""

from __future__ import annotations

import numpy as np
import pytest

from lbbsp import Proportional
from lbbsp.engine import Decision
from lbbsp.sim.bsp import SpeedTruth, simulate_bsp


@pytest.mark.parametrize("seed", range(6))
def test_the_gain_that_observing_expects_is_the_gain(seed: int) -> None:
    generator = np.random.default_rng(seed)
    workers = int(generator.integers(2, 9))
    truth = SpeedTruth(np.tile(generator.uniform(10, 100, workers), (12, 1)))
    decisions: list[Decision] = []
    x = 64 * workers
    observed = simulate_bsp(
        truth, Proportional(), global_batch_size=x, iterations=12, observe_only=True, on_decision=decisions.append
    )
    balanced = simulate_bsp(truth, Proportional(), global_batch_size=x, iterations=12)
    last = decisions[-1]
    assert (observed.sizes == observed.sizes[0]).all()
    assert last.proposed is not None
    assert last.proposed.tolist() == balanced.sizes[-1].tolist()
    assert last.proposed_s == pytest.approx(balanced.compute_s[-1].max(), rel=1e-9)
    assert last.expected_before_s == pytest.approx(observed.compute_s[-1].max(), rel=1e-9)
    assert last.proposed_s < last.expected_before_s
