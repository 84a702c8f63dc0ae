"""``lbbsp demo``: the main job, plain DDP against balanced."""

from lbbsp.cli.demo.command import demo

__all__ = ["demo"]
