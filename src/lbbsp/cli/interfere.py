"""``lbbsp interfere``: make this machine non-dedicated, from a recorded trace of CPU shares."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Annotated

import psutil
from cyclopts import Parameter
from rich.console import Console

from lbbsp.errors import ConfigurationError, LbbspError
from lbbsp.interfere import Interference, Replay, ShareTrace, join
from lbbsp.interfere import interfere as make_interference
from lbbsp.interfere.base import usable_cores

__all__ = ["CommandFailedError", "interfere"]

_POLL_S = 0.1


class CommandFailedError(LbbspError):
    """The command ended with an error of its own."""


def interfere(
    trace: Path,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    way: str = "auto",
    pace: float = 1.0,
) -> None:
    """Run a command whose worker processes get the CPU shares of a recorded trace.

    Workers are the command's descendants with LOCAL_RANK in their environment, as torchrun sets it; worker i gets
    the trace's column i. With a trace of one worker the command itself is that worker. Scripts may also call
    lbbsp.interfere.join at a moment of their own. All is undone when the command ends, and when this is killed.

    Example: lbbsp interfere shares.csv -- torchrun --nproc-per-node=4 train.py

    Parameters
    ----------
    trace
        A CSV file with the columns t_s, 0, 1, ...: seconds, and each worker's share of one core from then on.
    command
        What to run, after --.
    way
        quota, competitors or auto.
    pace
        Seconds of the trace in a second.
    """
    shares = ShareTrace.read(trace, largest=len(usable_cores()))
    if not command:
        raise ConfigurationError("no command: give one after --, e.g. lbbsp interfere shares.csv -- python train.py")
    console = Console(stderr=True)
    with make_interference(shares.shares[0], way=way) as interference:
        environment = interference.environment()
        try:
            process = subprocess.Popen(command, env=os.environ | environment, start_new_session=True)
        except OSError as error:
            raise ConfigurationError(f"{command[0]} cannot be run ({error.strerror})") from error
        try:
            with Replay(interference, shares, pace=pace) as replay:
                console.print(f"{interference.describe()} Changing {len(shares.times_s) - 1} times.")
                status = _wait(process, interference, shares.workers)
        finally:
            _end(process)
        if replay.refused:
            console.print(f"{replay.refused} changes were out of reach; the shares before them stayed in force")
    if status:
        raise CommandFailedError(f"{command[0]} ended with exit status {status}")


def _wait(process: subprocess.Popen[bytes], interference: Interference, workers: int) -> int:
    """Put workers in their places as they appear, until the command has ended; its exit status."""
    environment, placed = interference.environment(), set[int]()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=_POLL_S)
        found = {process.pid: 0} if workers == 1 else _workers(process.pid)
        for pid, worker in found.items():
            if pid not in placed and worker < workers:
                placed.add(pid)
                with contextlib.suppress(ConfigurationError):
                    join(worker, pid=pid, environment=environment)


def _workers(pid: int) -> dict[int, int]:
    """Worker numbers of the command's processes that have LOCAL_RANK."""
    found: dict[int, int] = {}
    with contextlib.suppress(psutil.Error):
        command = psutil.Process(pid)
        for descendant in command.children(recursive=True):
            with contextlib.suppress(psutil.Error, ValueError, KeyError):
                inherited = descendant.ppid() in found  # a worker's own children come along with it
                if not inherited:
                    found[descendant.pid] = int(descendant.environ()["LOCAL_RANK"])
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command's session if it still runs."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
