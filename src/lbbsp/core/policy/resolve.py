"""Policies by name."""

from __future__ import annotations

from typing import Any

from lbbsp.core.policy.auto import Auto
from lbbsp.core.policy.base import Policy
from lbbsp.core.policy.equal import Equal
from lbbsp.core.policy.fitted import Fitted
from lbbsp.core.policy.leader_straggler import LeaderStraggler
from lbbsp.core.policy.proportional import Proportional
from lbbsp.core.predict import Ema, LastValue
from lbbsp.errors import ConfigurationError

__all__ = ["POLICIES", "resolve_policy"]

POLICIES: dict[str, Policy[Any]] = {
    "auto": Auto(),
    "equal": Equal(),
    "fitted": Fitted(),
    "leader-straggler": LeaderStraggler(),
    "proportional": Proportional(),
    "proportional-last": Proportional(predictor=LastValue(), risk=0.0, name="proportional-last"),
    "proportional-ema": Proportional(predictor=Ema(), risk=0.0, name="proportional-ema"),
}
"""``auto`` is what `lbbsp` chooses: see `Auto`."""


def resolve_policy(policy: str | Policy[Any]) -> Policy[Any]:
    """The policy of that name, or the object itself.

    Raises:
        ConfigurationError: no policy has that name, or the object lacks the contract's methods.
    """
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise ConfigurationError(f"policy={policy!r}: choose one of {', '.join(POLICIES)}, or pass an object")
        return POLICIES[policy]
    missing = [name for name in ("name", "predictor", "init", "propose") if not hasattr(policy, name)]
    if missing:
        raise ConfigurationError(
            f"policy={policy!r} lacks {', '.join(missing)}; see lbbsp.core.policy.Policy for the contract"
        )
    return policy
