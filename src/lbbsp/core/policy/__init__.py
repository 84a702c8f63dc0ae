"""Sizing policies: how gathered reports become a proposal for the next sizes."""

from lbbsp.core.policy.auto import Auto
from lbbsp.core.policy.base import Policy, Problem, Proposal, Resumable
from lbbsp.core.policy.equal import Equal
from lbbsp.core.policy.few_shapes import FewShapes
from lbbsp.core.policy.fitted import Fitted
from lbbsp.core.policy.leader_straggler import LeaderStraggler
from lbbsp.core.policy.proportional import Proportional
from lbbsp.core.policy.resolve import resolve_policy

__all__ = [
    "Auto",
    "Equal",
    "FewShapes",
    "Fitted",
    "LeaderStraggler",
    "Policy",
    "Problem",
    "Proportional",
    "Proposal",
    "Resumable",
    "resolve_policy",
]
