"""``lbbsp reproduce``: the paper's comparisons, a table and a figure each."""

from lbbsp.cli.reproduce.command import reproduce

__all__ = ["reproduce"]
