"""Outlives a launcher that was killed and removes its cgroups: ``python _guard.py VERSION DIRECTORY...``.

The launcher holds the other end of the standard input, which ends when the launcher does, however that was.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(version: int, directories: list[str]) -> None:
    """Wait for the launcher's end, then set everybody free."""
    sys.stdin.buffer.read()
    from lbbsp.interfere.cgroups import Group  # late: until then this process should weigh nothing

    for directory in directories:
        Group(Path(directory), 2 if version == 2 else 1).remove()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
