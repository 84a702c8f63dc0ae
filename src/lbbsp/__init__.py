"""lbbsp: synchronous data-parallel training that stays fast on machines of unequal and changing speed.

Importing this package imports no framework.  Take ``LoadBalancer`` from the framework's own module::

    from lbbsp.torch import LoadBalancer
"""

from lbbsp.core.policy import Auto, Equal, FewShapes, Fitted, LeaderStraggler, Policy, Proportional
from lbbsp.core.predict import AdaptiveEma, Ema, LastValue, Predictor
from lbbsp.errors import (
    AllocationMismatchError,
    BatchTooLargeError,
    ConfigurationError,
    ExchangeError,
    InfeasibleBoundsError,
    LbbspError,
    MissingDependencyError,
    RankLostError,
    ResumeError,
    TelemetryError,
)
from lbbsp.runtime import Settings

__all__ = [
    "AdaptiveEma",
    "AllocationMismatchError",
    "Auto",
    "BatchTooLargeError",
    "ConfigurationError",
    "Ema",
    "Equal",
    "ExchangeError",
    "FewShapes",
    "Fitted",
    "InfeasibleBoundsError",
    "LastValue",
    "LbbspError",
    "LeaderStraggler",
    "MissingDependencyError",
    "Policy",
    "Predictor",
    "Proportional",
    "RankLostError",
    "ResumeError",
    "Settings",
    "TelemetryError",
]

__version__ = "0.1.0"
