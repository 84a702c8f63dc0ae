"""Who knows what: how reports travel between workers."""

from lbbsp.exchange.base import Exchange
from lbbsp.exchange.local import LocalExchange

__all__ = ["Exchange", "LocalExchange"]
