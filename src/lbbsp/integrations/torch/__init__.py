"""PyTorch: balanced data-parallel training with three more lines than plain DDP."""

from lbbsp.errors import MissingDependencyError

try:
    import torch  # noqa: F401
except ImportError as error:  # pragma: no cover - exercised in an environment without torch
    raise MissingDependencyError(
        'lbbsp.torch needs PyTorch, which is not installed: pip install "lbbsp[torch]"'
    ) from error

from lbbsp.integrations.torch.balancer import LoadBalancer
from lbbsp.integrations.torch.exchange import TorchExchange
from lbbsp.integrations.torch.limits import Limits
from lbbsp.integrations.torch.loader import BalancedLoader
from lbbsp.integrations.torch.memory import Memory

__all__ = ["BalancedLoader", "Limits", "LoadBalancer", "Memory", "TorchExchange"]
