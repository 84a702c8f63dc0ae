"""Which way to take, and the worker's side of whichever was taken."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence

from lbbsp.errors import ConfigurationError
from lbbsp.interfere.base import ENVIRONMENT, Interference, checked_shares, usable_cores
from lbbsp.interfere.competitors import Competitors, join_competition
from lbbsp.interfere.quota import Quotas, join_group

__all__ = ["available", "interfere", "join"]

_WAYS: dict[str, Callable[[Sequence[float]], Interference]] = {"quota": Quotas, "competitors": Competitors}
_JOINS = {"quota": join_group, "competitors": join_competition}


def available() -> tuple[str, ...]:
    """The ways that work here, best first, found by trying each: ``"quota"`` and ``"competitors"``.

    Takes a tenth of a second or less; nothing of it stays.
    """
    return tuple(way for way in _WAYS if _works(way))


def interfere(shares: Sequence[float], *, way: str = "auto") -> Interference:
    """Make as many workers as there are shares unequal; they enter with `join`.

    Args:
        shares: one for each worker, in cores: above 0, at most the number of cores.
        way: ``"quota"``, ``"competitors"``, or ``"auto"`` for the first that works here.

    Returns:
        The interference, in force; close it, or use it in a ``with`` block.

    Raises:
        ConfigurationError: a share is out of its bounds, no such way, or it does not work here, and why.

    Example:
        >>> with interfere([0.8, 0.4], way="competitors") as unequal:
        ...     names = list(unequal.environment())
        >>> names
        ['LBBSP_INTERFERENCE']
    """
    checked_shares(shares, largest=len(usable_cores()))
    if way != "auto":
        if way not in _WAYS:
            raise ConfigurationError(f"way={way!r}: must be 'auto', {', '.join(map(repr, _WAYS))}")
        return _WAYS[way](shares)
    reasons = []
    for name, make in _WAYS.items():
        try:
            return make(shares)
        except ConfigurationError as error:
            reasons.append(f"{name}: {error}")
    raise ConfigurationError("no way to make workers unequal works here; " + "; ".join(reasons))


def join(worker: int, *, pid: int | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Become worker ``worker`` of the launcher's interference, with all threads of this process.

    Call it in the worker process when that is ready, after its slow imports.  Its descendants come along.
    Without the launcher's environment it does nothing, so the same script runs undisturbed too.

    Args:
        worker: 0 to W-1, the rank on this machine.
        pid: another process, of the same user, to be it; for launchers of scripts that do not call this.
        environment: what the interference's ``environment()`` gave; this process's own if None.

    Raises:
        ConfigurationError: no such worker, or the launcher has closed the interference or is another user's.
    """
    text = (os.environ if environment is None else environment).get(ENVIRONMENT)
    if not text:
        return
    try:
        message = json.loads(text)
        enter = _JOINS[message["way"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"{ENVIRONMENT}={text!r}: not what environment() of an interference gives; pass that on unchanged"
        ) from error
    enter(message, worker, os.getpid() if pid is None else pid)


def _works(way: str) -> bool:
    try:
        _WAYS[way]([0.5]).close()
    except ConfigurationError:
        return False
    return True
