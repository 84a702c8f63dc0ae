"""Schemes by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from lbbsp.core.allocate import DeadBand
from lbbsp.core.policy import resolve_policy
from lbbsp.errors import ConfigurationError
from lbbsp.sim.rivals import Dbs, Lbb, OmniLearn
from lbbsp.sim.schemes.asp import Asp
from lbbsp.sim.schemes.backup import BackupWorkers
from lbbsp.sim.schemes.balanced import Balanced, Bsp
from lbbsp.sim.schemes.base import Scheme
from lbbsp.sim.schemes.flexrr import FlexRr
from lbbsp.sim.schemes.oracle import Oracle
from lbbsp.sim.schemes.ssp import Ssp
from lbbsp.sim.schemes.static import Static

__all__ = ["SCHEMES", "resolve_scheme"]

_NONE = DeadBand(min_gain=0.0)
"""Rival rules move by rules of their own, without the engine's dead band."""

SCHEMES: dict[str, Callable[[int | None], Scheme]] = {
    "bsp": lambda _: Bsp(),
    "asp": lambda _: Asp(),
    "oracle": lambda _: Oracle(),
    "static": lambda n: Static() if n is None else Static(measured=n),
    "ssp": lambda n: Ssp() if n is None else Ssp(staleness=n),
    "flexrr": lambda n: FlexRr() if n is None else FlexRr(staleness=n),
    "dbs": lambda _: Balanced(policy=Dbs(), dead_band=_NONE, label="dbs"),
    "omnilearn": lambda _: Balanced(policy=OmniLearn(), dead_band=_NONE, label="omnilearn"),
    "lbb": lambda _: Balanced(policy=Lbb(), dead_band=_NONE, label="lbb"),
    "backup": lambda n: BackupWorkers() if n is None else BackupWorkers(backups=n),
}
"""By family; those with a number (``ssp-3``) take it, None for their default."""

_NUMBERED = {"static", "ssp", "flexrr", "backup"}


def resolve_scheme(name: str) -> Scheme:
    """The scheme of that name: ``bsp``, ``ssp-3``, ..., or LB-BSP with a policy: ``lb-bsp/auto``.

    Raises:
        ConfigurationError: there is none.

    Example:
        >>> resolve_scheme("ssp-2").name, resolve_scheme("lb-bsp/proportional").name
        ('ssp-2', 'lb-bsp/proportional')
    """
    family, slash, policy = name.partition("/")
    if family == "lb-bsp":
        return Balanced(policy=resolve_policy(policy if slash else "auto"), label=name if slash else "lb-bsp/auto")
    match = re.fullmatch(r"([a-z]+)(?:-(\d+))?", name)
    if not match or match[1] not in SCHEMES or (match[2] and match[1] not in _NUMBERED):
        known = ", ".join(f"{n}[-N]" if n in _NUMBERED else n for n in sorted(SCHEMES))
        raise ConfigurationError(f"scheme {name!r}: choose {known}, or lb-bsp/POLICY")
    return SCHEMES[match[1]](int(match[2]) if match[2] else None)
