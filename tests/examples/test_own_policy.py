"""The predictor and the policy of the example keep the contracts, as the documentation shows."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np

from lbbsp import Proportional
from lbbsp.core.predict import Observation
from lbbsp.testing import PolicyContract, PredictorContract

example: dict[str, Any] = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "own_policy.py"))
Median, Halfway = example["Median"], example["Halfway"]


class TestMedian(PredictorContract):
    predictor = Median()


class TestHalfway(PolicyContract):
    policy = Halfway(Proportional(predictor=Median()))


def test_a_single_stall_does_not_move_the_median() -> None:
    predictor = Median(window=3)
    state = predictor.init(1)
    for speed in (100.0, 102.0, 3.0):
        state = predictor.step(state, Observation.of_speed(np.array([speed])))
    assert predictor.forecast(state).mean.tolist() == [100.0]
