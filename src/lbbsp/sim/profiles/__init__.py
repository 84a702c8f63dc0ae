"""Measured device profiles: step time against batch, as published with two schedulers for GPU clusters."""

from lbbsp.sim.profiles.gavel import Gavel, read_gavel
from lbbsp.sim.profiles.pollux import read_pollux
from lbbsp.sim.profiles.profile import Profile
from lbbsp.sim.profiles.truth import ProfileTruth

__all__ = ["Gavel", "Profile", "ProfileTruth", "read_gavel", "read_pollux"]
