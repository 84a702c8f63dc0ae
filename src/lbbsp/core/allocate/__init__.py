"""Sizing algorithms, one a file: from speeds or time models to integers that keep the sum."""

from lbbsp.core.allocate.apportion import apportion
from lbbsp.core.allocate.dead_band import DeadBand
from lbbsp.core.allocate.equal import equal_split
from lbbsp.core.allocate.leader_straggler import Step, leader_straggler
from lbbsp.core.allocate.minmax import minmax
from lbbsp.core.allocate.proportional import proportional
from lbbsp.core.allocate.short import short_split

__all__ = [
    "DeadBand",
    "Step",
    "apportion",
    "equal_split",
    "leader_straggler",
    "minmax",
    "proportional",
    "short_split",
]
