"""Unequal workers without any right: nice, CPU affinity, and competing busy processes."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lbbsp.errors import ConfigurationError
from lbbsp.interfere.base import ENVIRONMENT, checked_shares, usable_cores
from lbbsp.interfere.plan import Placement, place
from lbbsp.interfere.processes import (
    autogroup,
    can_lower_nice,
    is_left_behind,
    owner_name,
    settle,
    start_ticks,
)

__all__ = ["Competitors", "join_competition"]

_BUSY = Path(__file__).with_name("_busy.py")


class Competitors:
    """Put fast workers on some cores and slow ones on others, where busy processes compete with them.

    An approximation, as `describe` says with its figures: each worker is bound to one core; a level of nice
    is 25 %, so a share is met to about 12 %; where the shares of the workers that meet on a core add up to
    more than one core, all are scaled down alike.  A worker that waits leaves its time to the others of its
    core.  Without root a nice never falls: most changes of shares use up some of the 19 levels, until one is
    refused.

    The plan and the workers' process numbers are in a private temporary directory, so that a worker that
    joins late gets the shares of then, and `set_shares` reaches those that have joined.

    Args:
        shares: one for each worker, in cores: above 0, at most 1.
        lifetime_s: after so many seconds the competing processes end in any case.

    Raises:
        ConfigurationError: a share is out of its bounds or out of reach, or this is not Linux.
    """

    def __init__(self, shares: Sequence[float], *, lifetime_s: float = 6 * 3600.0) -> None:
        self._cores = usable_cores()
        self._workers = len(checked_shares(shares, largest=1.0))
        self._lifetime_s = lifetime_s
        self._busy: list[subprocess.Popen[bytes]] = []
        self._owner = os.getpid()
        _sweep()
        self._directory = Path(tempfile.mkdtemp(prefix=f"{owner_name()}-"))
        self._placement: Placement | None = None
        atexit.register(self.close)
        try:
            self.set_shares(shares)
        except BaseException:
            self.close()
            raise

    @property
    def shares(self) -> tuple[float, ...]:
        """What each worker gets by weight when all are busy, in cores."""
        return self._now.shares

    def describe(self) -> str:
        """What was done to the workers, in one sentence."""
        now = self._now
        competing = f"competing busy processes run on core {_listed(core for core, _ in now.competitors)}; "
        return (
            f"Without CPU quotas: the workers are bound to core {_listed(now.cores)} with nice "
            f"{_listed(now.nices)}; {competing if now.competitors else ''}by weight the workers get about "
            f"{_listed(f'{share:.2f}' for share in now.shares)} of a core when all are busy."
        )

    def environment(self) -> dict[str, str]:
        """What to add to the environment of every worker process."""
        return {ENVIRONMENT: json.dumps({"way": "competitors", "directory": str(self._directory)})}

    def set_shares(self, shares: Sequence[float]) -> None:
        """Change the shares now: other nices and cores for the workers, other competing processes.

        Args:
            shares: one for each worker, in cores, at most 1.

        Raises:
            ConfigurationError: not one share a worker, or one that is out of its bounds or, as the class
                explains, out of reach; the shares then stay as they were.
        """
        shares = checked_shares(shares, largest=1.0, workers=self._workers)
        if not self._directory.exists():
            raise ConfigurationError("set_shares: these competitors are closed; make new ones")
        with _locked(self._directory):
            before, own_nice = self._placement, max(0, os.getpriority(os.PRIO_PROCESS, 0))
            joined = _joined(self._directory)
            least_nices = [own_nice] * self._workers
            if before is not None and not can_lower_nice():
                for worker in joined:
                    least_nices[worker] = before.nices[worker]
            placement = place(
                shares,
                self._cores,
                own_nice=own_nice,
                least_nices=least_nices,
                before=[None] * self._workers if before is None else before.cores,
            )
            old, self._busy = self._busy, []
            try:
                for core, nice in placement.competitors:
                    self._compete(core, nice)
                for worker, pid in joined.items():
                    settle(pid, cores=[placement.cores[worker]], nice=placement.nices[worker])
            except BaseException:
                _end(self._busy)
                self._busy = old
                raise
            _end(old)
            self._placement = placement
            _write_plan(self._directory, placement)

    def close(self) -> None:
        """End the competing processes and give the workers all cores again; a second call does nothing."""
        if os.getpid() != self._owner:
            return  # a fork of the launcher that ends does not end the interference
        atexit.unregister(self.close)
        busy, self._busy = self._busy, []
        _end(busy)
        if not self._directory.exists():
            return
        with _locked(self._directory):
            for pid in _joined(self._directory).values():
                with contextlib.suppress(ConfigurationError):  # the nice may have to stay
                    settle(pid, cores=self._cores, nice=None)
                    settle(pid, cores=self._cores, nice=max(0, os.getpriority(os.PRIO_PROCESS, 0)))
            shutil.rmtree(self._directory)

    def __enter__(self) -> Competitors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _now(self) -> Placement:
        assert self._placement is not None
        return self._placement

    def _compete(self, core: int, nice: int) -> None:
        command = [sys.executable, "-I", "-S", str(_BUSY), str(os.getpid()), str(self._lifetime_s)]
        # In a session of its own, so that the kernel weighs it by itself and Ctrl-C leaves it to us.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._busy.append(process)
        settle(process.pid, cores=[core], nice=nice)


def join_competition(message: dict[str, Any], worker: int, pid: int) -> None:
    """Give ``pid`` the core and nice of ``worker``; ``message`` is what `Competitors.environment` gave."""
    directory = Path(message["directory"])
    try:
        with _locked(directory):
            plan = json.loads((directory / "plan.json").read_text())
            if not 0 <= worker < len(plan["cores"]):
                raise ConfigurationError(
                    f"worker {worker}: must be 0 to {len(plan['cores']) - 1}, as shares were given"
                )
            if pid == plan["launcher"]:
                raise ConfigurationError(
                    f"worker {worker} is the launcher's own process; start workers as processes of their own"
                )
            _leave_autogroup(plan["autogroup"], pid)
            settle(pid, cores=[plan["cores"][worker]], nice=plan["nices"][worker])
            (directory / f"worker{worker}").write_text(f"{pid} {start_ticks(pid)}")
    except OSError as error:
        raise ConfigurationError(
            f"worker {worker} cannot read {directory} ({error.strerror}); the launcher must be alive, its "
            "competitors open, and of the same user"
        ) from error


def _leave_autogroup(launchers: str | None, pid: int) -> None:
    """Where the kernel weighs sessions, get out of the launcher's into one of our own."""
    if launchers is None or autogroup(pid) != launchers:
        return
    why = "is not this one"
    if pid == os.getpid():
        try:
            os.setsid()
        except PermissionError:
            why = "leads a process group"
        else:
            return
    raise ConfigurationError(
        f"process {pid} {why}, so it cannot be taken out of the launcher's session, which counts as one; start "
        "workers with start_new_session=True, or set kernel.sched_autogroup_enabled=0"
    )


def _write_plan(directory: Path, placement: Placement) -> None:
    plan = {
        "launcher": os.getpid(),
        "autogroup": autogroup(os.getpid()),
        "cores": placement.cores,
        "nices": placement.nices,
    }
    (directory / "plan.json").write_text(json.dumps(plan))


def _joined(directory: Path) -> dict[int, int]:
    """The process number of each worker that has joined and is alive."""
    joined = {}
    for file in directory.glob("worker*"):
        pid, start = map(int, file.read_text().split())
        if start_ticks(pid) == start:
            joined[int(file.name.removeprefix("worker"))] = pid
    return joined


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One at a time, between processes and between threads."""
    import fcntl  # late: there is none on Windows, where this module must import to say so

    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def _sweep() -> None:
    """Remove the directories of launchers now dead; their competing processes have ended by themselves."""
    for path in Path(tempfile.gettempdir()).glob("lbbsp-*"):
        if is_left_behind(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
