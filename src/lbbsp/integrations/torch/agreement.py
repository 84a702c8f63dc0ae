"""Ranks agree on what they were given before any work: what is wrong on one is raised on all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lbbsp.errors import ConfigurationError
from lbbsp.exchange import Exchange
from lbbsp.exchange.base import raise_together

__all__ = ["agree"]


def agree(exchange: Exchange, check: Callable[[], tuple[dict[str, Any], Any]]) -> list[Any]:
    """Check on every rank and compare; collective.

    Args:
        exchange: of all ranks.
        check: raises ConfigurationError, or returns what must be the same on all ranks, by name, and what is
            this rank's own; both as values that JSON can hold.

    Returns:
        What is each rank's own.

    Raises:
        ConfigurationError: on every rank, if a check failed on any or the ranks differ.
    """
    answers = [json.loads(text) for text in raise_together(exchange, lambda: json.dumps(check()))]
    first = answers[0][0]
    for name in first:
        for rank, (same, _) in enumerate(answers):
            if same[name] != first[name]:
                raise ConfigurationError(
                    f"{name} differs between ranks: rank 0 has {first[name]}, rank {rank} has {same[name]}; give the "
                    "same on every rank (a policy of your own needs a repr that shows its values, as dataclasses have)"
                )
    return [own for _, own in answers]
