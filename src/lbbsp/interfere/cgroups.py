"""CPU cgroups of version 1 and 2: find, make, limit, enter and remove them.

Version 1 (``cpu`` controller): a quota is ``cpu.cfs_quota_us`` in every ``cpu.cfs_period_us``, a weight is
``cpu.shares``.  Version 2: ``cpu.max`` and ``cpu.weight``, present where the parent's
``cgroup.subtree_control`` holds ``cpu``.

By the rule of version 2 that a group holds either processes or groups with controllers, we would have to move
foreign processes out of the group that we are in.  ``cpu`` is a *threaded* controller, though, for which the
kernel makes an exception: it can be enabled beside processes, if the groups below are made ``threaded``.
They then stay within our own group for memory and everything else, so no other limit is escaped.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "Threads" and "No Internal Process Constraint";
Documentation/scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lbbsp.errors import ConfigurationError
from lbbsp.interfere.processes import is_left_behind
from lbbsp.telemetry.sensors.cgroup import own_group, words

__all__ = ["Group", "Hierarchy", "find_hierarchy"]

_LEAST_QUOTA_US = 1_000
_LARGEST_PERIOD_US = 1_000_000
_WEIGHT_OF_CORE = {1: 4096, 2: 400}  # four times what a process or group weighs by default
_REMOVE_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where groups can be made.

    Args:
        directory: the group that this process is in, of the hierarchy with the ``cpu`` controller.
        version: of the cgroup interface.
    """

    directory: Path
    version: Literal[1, 2]

    def make(self, name: str) -> Group:
        """Make a group in this one; raises OSError."""
        path = self.directory / name
        if self.version == 2 and "cpu" not in words(self.directory / "cgroup.subtree_control"):
            _write(self.directory / "cgroup.subtree_control", "+cpu")
        _mkdir(path)
        group = Group(path, self.version)
        if self.version == 2 and words(path / "cgroup.type") == ["domain", "invalid"]:
            _write(path / "cgroup.type", "threaded")
        return group

    def delegates_cpu(self) -> bool:
        """Whether groups made in this one have the ``cpu`` controller already."""
        return self.version == 1 or "cpu" in words(self.directory / "cgroup.subtree_control")

    def stop_delegating_cpu(self) -> None:
        """Undo what the first `make` did to this group, unless any other group needs it."""
        if self.version == 2 and not _groups_in(self.directory):
            _write(self.directory / "cgroup.subtree_control", "-cpu")

    def sweep(self) -> None:
        """Remove the groups that dead launchers left behind; live processes go back to this group."""
        for path in _groups_in(self.directory):
            if is_left_behind(path.name):
                Group(path, self.version).remove()


@dataclass(frozen=True, slots=True)
class Group:
    """One group; every method but `remove` raises OSError as the kernel gives it."""

    path: Path
    version: Literal[1, 2]

    def set_share(self, share: float, period_us: int) -> None:
        """Limit the group to ``share`` cores in every period, and weigh it by its share.

        Without the weight a worker with a large quota gets less than that: where the cores are nearly full it
        meets the others at the start of each period, on equal terms, and cannot catch up.

        Args:
            share: in cores; at least 1 ms in a period of 1 s.
            period_us: microseconds; longer where the share would be less than the kernel's least quota, 1 ms.

        Raises:
            ConfigurationError: the share is too small for any period.
        """
        period_us = max(period_us, round(_LEAST_QUOTA_US / share))
        if period_us > _LARGEST_PERIOD_US:
            least = _LEAST_QUOTA_US / _LARGEST_PERIOD_US
            raise ConfigurationError(f"share {share}: a CPU quota must be {least:g} of a core or more")
        quota_us = max(_LEAST_QUOTA_US, round(share * period_us))
        weight = round(_WEIGHT_OF_CORE[self.version] * share)
        if self.version == 2:
            _write(self.path / "cpu.max", f"{quota_us} {period_us}")
            _write(self.path / "cpu.weight", str(min(max(weight, 1), 10_000)))
            return
        _write(self.path / "cpu.shares", str(max(weight, 2)))
        writes = [("cpu.cfs_period_us", period_us), ("cpu.cfs_quota_us", quota_us)]
        if period_us < int((self.path / "cpu.cfs_period_us").read_text()):
            writes.reverse()  # so that the share between the two writes is never above both
        for file, value in writes:
            _write(self.path / file, str(value))

    def enter(self, pid: int) -> None:
        """Move a process with all of its threads into the group."""
        _write(self.path / "cgroup.procs", str(pid))

    def remove(self) -> bool:
        """Move what lives in the group to its parent and remove it; False where that takes over 2 s."""
        end_s = time.monotonic() + _REMOVE_LIMIT_S
        while True:
            for path in _groups_in(self.path):
                Group(path, self.version).remove()
            self._evict()
            try:
                _rmdir(self.path)
            except FileNotFoundError:
                return True
            except OSError:  # a process that was just forked in here, or is still dying
                if time.monotonic() > end_s:
                    return False
                time.sleep(0.01)
            else:
                return True

    def _evict(self) -> None:
        threaded = self.version == 2 and words(self.path / "cgroup.type") == ["threaded"]
        file = "cgroup.threads" if threaded else "cgroup.procs"  # the other cannot be read there
        for number in words(self.path / file):
            try:
                _write(self.path.parent / file, number)
            except OSError as error:
                if error.errno not in (errno.ESRCH, errno.ENOENT):
                    return  # not ours to move: rmdir will say so


def find_hierarchy(proc: Path = Path("/proc/self")) -> Hierarchy:
    """The hierarchy with the ``cpu`` controller and the group of this process in it.

    Args:
        proc: holds ``mountinfo`` and ``cgroup``; another directory serves tests.

    Raises:
        ConfigurationError: none is mounted, or the controller does not reach the group of this process.
    """
    try:
        group = own_group("cpu", proc)
    except OSError as error:
        raise ConfigurationError(f"CPU quotas need Linux' cgroups ({error}); use way='competitors'") from error
    if group is not None and (group.version == 1 or "cpu" in words(group.directory / "cgroup.controllers")):
        return Hierarchy(group.directory, group.version)
    raise ConfigurationError(
        "CPU quotas need a mounted cgroup hierarchy whose cpu controller reaches the group of this process, "
        f"and {proc}/mountinfo names none; have the controller delegated, or use way='competitors'"
    )


def _groups_in(directory: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _write(file: Path, text: str) -> None:
    file.write_text(text)


def _mkdir(path: Path) -> None:
    os.mkdir(path)


def _rmdir(path: Path) -> None:
    os.rmdir(path)
