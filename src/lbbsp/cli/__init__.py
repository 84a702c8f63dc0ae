"""The ``lbbsp`` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; exit 0 only when the work was done, 1 when it failed, 2 for bad use."""
    try:
        from lbbsp.cli.app import run
    except ImportError as error:
        print(
            f'lbbsp: the command line needs {error.name}, which is not installed: pip install "lbbsp[cli]"',
            file=sys.stderr,
        )
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
