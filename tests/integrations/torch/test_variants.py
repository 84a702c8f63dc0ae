"""I4 for what real training scripts do: the update is one process's, whatever the allocation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.rank_pool import RankPool
from tests.support.training import flat
from tests.support.variants import alone, balanced

TOLERANCE = 1e-12


def far(actual: object, expected: object) -> float:
    """The largest difference, relative to the largest entry."""
    a, b = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    assert a.shape == b.shape
    return float(np.abs(a - b).max(initial=0.0) / max(1.0, np.abs(b).max(initial=0.0)))


KINDS = ["plain", "tokens", "sync_norm", "unused", "static", "tied", "frozen", "clip", "two_passes", "scaler"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_update_is_one_processs(ranks: RankPool, kind: str) -> None:
    expected = alone(kind)
    results = ranks.run(balanced, kind)
    assert len(set(map(tuple, zip(*(r["sizes"] for r in results), strict=True)))) > 2  # the sizes did change
    for result in results:
        for mine, theirs in zip(result["gradients"], expected.gradients, strict=True):
            assert far(mine, theirs) <= TOLERANCE
        assert far(result["parameters"], flat(expected.net.parameters())) <= TOLERANCE
        assert far(result["buffers"], flat(b.double() for b in expected.net.buffers())) <= TOLERANCE
        assert result["parameters"] == results[0]["parameters"]
        assert all(result["reported"][2:])
        if kind != "scaler":
            assert far(result["losses"], expected.losses) <= TOLERANCE
        assert result["scales"] == expected.scales
