"""Memory: a rank's cap, from what it can see beforehand and from running out of it."""

from lbbsp.integrations.torch.memory.desk import MemoryDesk, explained
from lbbsp.integrations.torch.memory.options import Memory
from lbbsp.integrations.torch.memory.watch import MemoryWatch, probe_for

__all__ = ["Memory", "MemoryDesk", "MemoryWatch", "explained", "probe_for"]
