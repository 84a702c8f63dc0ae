"""Unequal workers by CPU quotas: exact and changed at no cost, but the right to make cgroups is needed."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lbbsp.errors import ConfigurationError
from lbbsp.interfere.base import ENVIRONMENT, checked_shares, usable_cores
from lbbsp.interfere.cgroups import Group, Hierarchy, find_hierarchy
from lbbsp.interfere.processes import family, owner_name

__all__ = ["Quotas", "join_group"]

_LEAST_PERIOD_US = 20_000
_LARGEST_PERIOD_US = 1_000_000
_serial = itertools.count()


class Quotas:
    r"""Hold worker i to ``share_i`` cores, by a cgroup of its own: at most ``share_i * period`` every period.

    A worker that waits leaves its share unused, as on a slow machine of its own; nobody else gets it.  Shares
    that add up to more than there are cores are upper limits, and the cores are split in their proportion.

    Args:
        shares: one for each worker, in cores: above 0, at most the number of cores.
        period_us: microseconds, 20 000 to 1 000 000; keep it well below the time of an iteration, and not
            below the kernel's own coarseness (a tick, 1 to 10 ms).
        hierarchy: where to make the cgroups; that of this process by default.

    Raises:
        ConfigurationError: a share or the period is out of its bounds, or cgroups cannot be made here.
    """

    def __init__(
        self,
        shares: Sequence[float],
        *,
        period_us: int = _LEAST_PERIOD_US,
        hierarchy: Hierarchy | None = None,
    ) -> None:
        if not _LEAST_PERIOD_US <= period_us <= _LARGEST_PERIOD_US:
            raise ConfigurationError(
                f"period_us={period_us}: must be {_LEAST_PERIOD_US} to {_LARGEST_PERIOD_US} microseconds"
            )
        self._cores = len(usable_cores())
        self._shares = checked_shares(shares, largest=self._cores)
        self._period_us = period_us
        self._hierarchy = find_hierarchy() if hierarchy is None else hierarchy
        self._groups: list[Group] = []
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._hierarchy.sweep()
        self._delegated = self._hierarchy.delegates_cpu()
        atexit.register(self.close)
        try:
            name = f"{owner_name()}-{next(_serial)}"
            for worker, share in enumerate(self._shares):
                self._groups.append(self._hierarchy.make(f"{name}-w{worker}"))
                self._groups[worker].set_share(share, period_us)
            _try_to_enter(self._groups[0])
            self._guard = _guard_of(self._groups)
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"CPU quotas cannot be made in {self._hierarchy.directory} ({error.strerror}); be root, have "
                "the cgroup delegated (systemd-run --user --scope -p Delegate=yes), or use way='competitors'"
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def shares(self) -> tuple[float, ...]:
        """The upper limit of each worker, in cores."""
        return self._shares

    def describe(self) -> str:
        """What was done to the workers, in one sentence."""
        text = (
            f"CPU quotas (cgroup v{self._hierarchy.version}, period {self._period_us / 1000:g} ms) hold the "
            f"workers to {', '.join(f'{share:.3g}' for share in self._shares)} of a core"
        )
        if sum(self._shares) > self._cores:
            text += f", in proportion where all {self._cores} cores are busy"
        return text + "."

    def environment(self) -> dict[str, str]:
        """What to add to the environment of every worker process."""
        paths = [str(group.path) for group in self._groups]
        return {ENVIRONMENT: json.dumps({"way": "quota", "groups": paths})}

    def set_shares(self, shares: Sequence[float]) -> None:
        """Change the quotas now.

        Args:
            shares: one for each worker, in cores.

        Raises:
            ConfigurationError: not one share a worker, or one that is out of its bounds or that the kernel
                refuses, as where a surrounding cgroup has less.
        """
        shares = checked_shares(shares, largest=self._cores, workers=len(self._shares))
        if not self._groups:
            raise ConfigurationError("set_shares: these quotas are closed; make new ones")
        for worker, (group, share) in enumerate(zip(self._groups, shares, strict=True)):
            try:
                group.set_share(share, self._period_us)
            except OSError as error:
                raise ConfigurationError(
                    f"share {share} of worker {worker} was refused ({error.strerror}); a surrounding cgroup "
                    "may have less: ask for less than that"
                ) from error
        self._shares = shares

    def close(self) -> None:
        """Move the workers back to the launcher's cgroup and remove theirs; a second call does nothing."""
        if os.getpid() != self._owner:
            return  # a fork of the launcher that ends does not end the interference
        atexit.unregister(self.close)
        groups, self._groups = self._groups, []
        for group in groups:
            if not group.remove():
                warnings.warn(f"cgroup {group.path} is still in use; the next start removes it", stacklevel=2)
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        if groups and not self._delegated:
            try:
                self._hierarchy.stop_delegating_cpu()
            except OSError as error:
                warnings.warn(f"cgroup {self._hierarchy.directory} keeps its cpu control: {error}", stacklevel=2)

    def __enter__(self) -> Quotas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def join_group(message: dict[str, Any], worker: int, pid: int) -> None:
    """Put ``pid`` and its descendants into the cgroup of ``worker``; ``message`` is from `Quotas.environment`."""
    groups = message["groups"]
    if not 0 <= worker < len(groups):
        raise ConfigurationError(f"worker {worker}: must be 0 to {len(groups) - 1}, as quotas were made")
    try:
        for member in family(pid):
            Group(Path(groups[worker]), 1).enter(member)
    except OSError as error:
        raise ConfigurationError(
            f"worker {worker} cannot enter the cgroup {groups[worker]} ({error.strerror}); the launcher must "
            "be alive, its quotas open, and of the same user"
        ) from error


def _guard_of(groups: list[Group]) -> subprocess.Popen[bytes]:
    """A process that removes the groups if this one is killed."""
    command = [sys.executable, str(Path(__file__).with_name("_guard.py"))]
    command += [str(groups[0].version), *(str(group.path) for group in groups)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    # In a session of its own, so that a Ctrl-C that ends the launcher does not end it before.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, start_new_session=True
    )


def _try_to_enter(group: Group) -> None:
    """Move a process in, for the kernel checks that only then; raises OSError."""
    command = [sys.executable, "-I", "-S", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            group.enter(process.pid)
        finally:
            process.kill()
