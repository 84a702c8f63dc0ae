"""Rules of other systems that size batches, written from their papers' descriptions, to compare with."""

from lbbsp.sim.rivals.dbs import Dbs
from lbbsp.sim.rivals.lbb import Lbb
from lbbsp.sim.rivals.omnilearn import OmniLearn

__all__ = ["Dbs", "Lbb", "OmniLearn"]
