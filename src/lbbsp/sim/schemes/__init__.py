"""The schemes that are compared, one a file."""

from lbbsp.sim.schemes.asp import Asp
from lbbsp.sim.schemes.backup import BackupWorkers
from lbbsp.sim.schemes.balanced import Balanced, Bsp
from lbbsp.sim.schemes.base import Gradients, Job, Scheme, Timeline
from lbbsp.sim.schemes.flexrr import FlexRr
from lbbsp.sim.schemes.oracle import Oracle
from lbbsp.sim.schemes.resolve import resolve_scheme
from lbbsp.sim.schemes.ssp import Ssp
from lbbsp.sim.schemes.static import Static

__all__ = [
    "Asp",
    "BackupWorkers",
    "Balanced",
    "Bsp",
    "FlexRr",
    "Gradients",
    "Job",
    "Oracle",
    "Scheme",
    "Ssp",
    "Static",
    "Timeline",
    "resolve_scheme",
]
