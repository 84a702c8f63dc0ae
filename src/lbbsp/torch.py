"""The short public name of the PyTorch integration: ``from lbbsp.torch import LoadBalancer``."""

from lbbsp.integrations.torch import Limits, LoadBalancer, Memory, TorchExchange
from lbbsp.runtime import Settings

__all__ = ["Limits", "LoadBalancer", "Memory", "Settings", "TorchExchange"]
