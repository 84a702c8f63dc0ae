"""Policies keep the contract and are found by name."""

from __future__ import annotations

import pytest

from lbbsp.core.policy import Equal, Proportional, resolve_policy
from lbbsp.core.policy.resolve import POLICIES
from lbbsp.core.predict import LastValue
from lbbsp.errors import ConfigurationError
from lbbsp.testing import PolicyContract
from tests.support.policies import RandomSizes


class TestProportional(PolicyContract):
    policy = Proportional()


class TestProportionalLast(PolicyContract):
    policy = Proportional(predictor=LastValue())


class TestEqual(PolicyContract):
    policy = Equal()


class TestRandom(PolicyContract):
    policy = RandomSizes(4)


def test_by_name() -> None:
    for name, policy in POLICIES.items():
        assert resolve_policy(name) is policy
        assert policy.name in {name, "proportional"}
    own = Proportional(predictor=LastValue())
    assert resolve_policy(own) is own
    with pytest.raises(ConfigurationError, match="policy='best': choose one of auto"):
        resolve_policy("best")
