"""Processes of this machine: who owns what, on which cores they run, and how much they weigh (Linux)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from lbbsp.errors import ConfigurationError

__all__ = [
    "autogroup",
    "can_lower_nice",
    "family",
    "is_left_behind",
    "owner_name",
    "settle",
    "start_ticks",
]

_AUTOGROUP_LIMIT_S = 10.0
_CAP_SYS_NICE = 23


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks after boot; None where it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()  # the name before it may hold spaces and parentheses
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def owner_name() -> str:
    """``lbbsp-<pid>-<start>``: names this process for good, though its number may be used again."""
    return f"lbbsp-{os.getpid()}-{start_ticks(os.getpid())}"


def is_left_behind(name: str) -> bool:
    """Whether ``name`` begins with the `owner_name` of a process that is no more."""
    match = re.match(r"lbbsp-(\d+)-(\d+)(?!\d)", name)
    return match is not None and start_ticks(int(match[1])) != int(match[2])


def family(pid: int) -> list[int]:
    """The process and its descendants, such as data loaders."""
    family = [pid]
    for process in family:
        for thread in _numbers(Path(f"/proc/{process}/task")):
            try:
                family.extend(map(int, Path(f"/proc/{process}/task/{thread}/children").read_text().split()))
            except OSError:  # gone, or a kernel without this file
                continue
    return family


def settle(pid: int, *, cores: Iterable[int], nice: int | None) -> None:
    """Put a process, its descendants and all their threads on ``cores``, with the weight of ``nice``.

    Where the kernel groups processes by session (autogroup), a process' own nice counts only within its
    session, and the session's nice counts between sessions; so both are set.

    Args:
        pid: the process; one that is gone is no error.
        cores: where it may run.
        nice: 0 to 19, each level weighs 1.25 times less than the one before; None leaves it alone.

    Raises:
        ConfigurationError: the right to do it is missing; only root can lower a nice.
    """
    if nice is not None:  # first, for this can be undone without root
        _set_autogroup_nice(pid, nice)
    for process in family(pid):
        done: set[int] = set()
        while new := _numbers(Path(f"/proc/{process}/task")) - done:  # again: threads start threads
            for thread in new:
                _settle_thread(thread, set(cores), nice)
            done |= new


def autogroup(pid: int) -> str | None:
    """The name of the session group that the kernel weighs this process in; None where there is none."""
    text = _autogroup_text(pid)
    return text.split()[0] if text else None


def can_lower_nice() -> bool:
    """Whether this process may lower a nice again (CAP_SYS_NICE)."""
    match = re.search(r"^CapEff:\s*(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> _CAP_SYS_NICE & 1)


def _settle_thread(thread: int, cores: set[int], nice: int | None) -> None:
    try:
        os.sched_setaffinity(thread, cores)
        if nice is not None and os.getpriority(os.PRIO_PROCESS, thread) != nice:
            os.setpriority(os.PRIO_PROCESS, thread, nice)
    except ProcessLookupError:
        pass
    except OSError as error:
        raise ConfigurationError(
            f"process {thread} cannot be put on cores {sorted(cores)} with nice {nice} ({error.strerror}); "
            "it must belong to this user, and only root lowers a nice or leaves its cpuset"
        ) from error


def _numbers(directory: Path) -> set[int]:
    try:
        return {int(name) for name in os.listdir(directory)}
    except OSError:
        return set()


def _autogroup_text(pid: int) -> str:
    try:
        if Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "0":
            return ""
        return Path(f"/proc/{pid}/autogroup").read_text()
    except OSError:
        return ""


def _set_autogroup_nice(pid: int, nice: int) -> None:
    text = _autogroup_text(pid)
    if not text or int(text.split()[-1]) == nice:
        return
    end_s = time.monotonic() + _AUTOGROUP_LIMIT_S
    while True:
        try:
            file = os.open(f"/proc/{pid}/autogroup", os.O_WRONLY)
            try:
                os.write(file, str(nice).encode())
            finally:
                os.close(file)
        except BlockingIOError as error:  # without root: once in 0.1 s for all processes of the machine
            if time.monotonic() > end_s:
                raise ConfigurationError(
                    f"autogroup of process {pid}: the kernel refused nice {nice} for {_AUTOGROUP_LIMIT_S:g} "
                    "s; start fewer workers at a time, or set kernel.sched_autogroup_enabled=0"
                ) from error
            time.sleep(0.03)
        except (FileNotFoundError, ProcessLookupError):
            return
        except OSError as error:
            raise ConfigurationError(
                f"autogroup of process {pid} cannot get nice {nice} ({error.strerror}); it must belong to this user"
            ) from error
        else:
            return
