"""The short public name of the PyTorch integration: ``from lbbsp.torch import LoadBalancer``."""

from lbbsp.integrations.torch import Limits, LoadBalancer, TorchExchange
from lbbsp.runtime import Settings

__all__ = ["Limits", "LoadBalancer", "Settings", "TorchExchange"]
