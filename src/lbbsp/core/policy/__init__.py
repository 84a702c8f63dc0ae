"""Sizing policies: how gathered reports become a proposal for the next sizes."""

from lbbsp.core.policy.base import Policy, Problem, Proposal
from lbbsp.core.policy.equal import Equal
from lbbsp.core.policy.proportional import Proportional
from lbbsp.core.policy.resolve import resolve_policy

__all__ = ["Equal", "Policy", "Problem", "Proportional", "Proposal", "resolve_policy"]
