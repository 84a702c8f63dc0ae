"""Where this process stands in the cgroup hierarchies of version 1 and 2.

Inside a container ``/proc/self/cgroup`` may name a path outside of what is mounted; the group is then the
mount's own root, which is the container's.

Source: Linux, cgroups(7), "/proc files", and Documentation/admin-guide/cgroup-v2.rst, "Namespace".
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["OwnGroup", "numbers", "own_group", "words"]


@dataclass(frozen=True, slots=True)
class OwnGroup:
    """The group of this process for one controller.

    Args:
        directory: its directory.
        mount: the root of what is mounted, at or above ``directory``.
        version: of the cgroup interface.
    """

    directory: Path
    mount: Path
    version: Literal[1, 2]

    def upwards(self) -> list[Path]:
        """The group and all above it, for limits of any of them hold."""
        inside = self.directory.relative_to(self.mount)
        return [self.directory, *(self.mount / parent for parent in inside.parents)] if inside.parts else [self.mount]


def own_group(controller: str, proc: Path = Path("/proc/self")) -> OwnGroup | None:
    """The group of this process in the hierarchy with ``controller``; None where there is none.

    Version 1 is looked at first, for a controller that it has is not in version 2.

    Args:
        controller: "cpu" or "memory".
        proc: holds ``mountinfo`` and ``cgroup``.

    Raises:
        OSError: those files cannot be read.
    """
    paths: dict[int, str] = {}
    for line in (proc / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            paths[1] = path
        elif not controllers:
            paths[2] = path
    mounts = (proc / "mountinfo").read_text().splitlines()
    for version, path in sorted(paths.items()):
        for mount in mounts:
            before, _, after = mount.partition(" - ")
            (root, point), (kind, _, options) = before.split()[3:5], after.split(" ", 2)
            if version == 1 and kind == "cgroup" and controller in options.split(","):
                base = _unescaped(point)
                return OwnGroup(_within(path, root, base), base, 1)
            if version == 2 and kind == "cgroup2":
                base = _unescaped(point)
                directory = _within(path, root, base)
                if directory == base or controller in words(directory / "cgroup.controllers"):
                    return OwnGroup(directory, base, 2)
    return None


def _unescaped(point: str) -> Path:
    return Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point))


def _within(path: str, root: str, base: Path) -> Path:
    """The directory of group ``path`` where a mount shows the hierarchy from ``root`` on at ``base``."""
    inside = os.path.relpath(path, root)
    return base if inside == "." or inside.startswith("..") else base / inside


def words(file: Path) -> list[str]:
    """The words in a small file of the kernel's; none where it cannot be read."""
    try:
        return file.read_text().split()
    except OSError:
        return []


def numbers(file: Path) -> dict[str, int]:
    """A file of lines "name number" as a mapping; empty where it cannot be read."""
    pairs = words(file)
    return {name: int(value) for name, value in zip(pairs[::2], pairs[1::2], strict=False) if value.isdigit()}
