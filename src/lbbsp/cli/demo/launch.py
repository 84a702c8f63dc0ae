"""Starts the workers under torchrun, serves their requests, and ends them whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from lbbsp.errors import LbbspError
from lbbsp.integrations.torch.workload.job import Job, Outcome
from lbbsp.interfere import Interference

__all__ = ["WorkersFailedError", "run_job"]

_POLL_S = 0.02
_WATCH_EVERY_S = 0.25


class WorkersFailedError(LbbspError):
    """The training processes did not end well; the message holds the end of what they wrote."""


def run_job(
    job: Job,
    interference: Interference,
    shares: list[float],
    *,
    watch: Callable[[], None] = lambda: None,
    answer: Callable[[str], None] | None = None,
) -> Outcome:
    """Run the job under torchrun, one process a share, and return what came of it.

    Args:
        job: what to run; its folder exists.
        interference: makes the workers unequal; asked by the workers to change.
        shares: the shares at a segment's start; reversed by a change.
        watch: called a few times a second meanwhile.
        answer: called with "start" or "change" instead of setting those shares.

    Raises:
        WorkersFailedError: torchrun ended with an error.
        KeyboardInterrupt: as it comes; the workers are ended before.
    """

    def swap(what: str) -> None:
        interference.set_shares(shares if what == "start" else shares[::-1])

    folder = Path(job.folder)
    (folder / "job.json").write_bytes(msgspec.json.encode(job))
    log = folder / "workers.log"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--rdzv-backend=c10d"),
        *("--rdzv-endpoint=127.0.0.1:0", f"--nproc-per-node={len(shares)}", "--max-restarts=0"),
        *("-m", "lbbsp.integrations.torch.workload.worker", str(folder / "job.json")),
    ]
    environment = {
        **os.environ,
        **interference.environment(),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            _serve(process, folder, answer or swap, watch)
        finally:
            _end(process)
    if process.returncode != 0:
        raise WorkersFailedError(
            f"the training processes ended with exit status {process.returncode}; the end of {log}:\n{_tail(log)}"
        )
    return msgspec.json.decode((folder / "outcome.json").read_bytes(), type=Outcome)


def _serve(
    process: subprocess.Popen[bytes],
    folder: Path,
    answer: Callable[[str], None],
    watch: Callable[[], None],
) -> None:
    number, watched_s = 0, 0.0
    while process.poll() is None:
        request = folder / f".request-{number}"
        if request.exists() and (what := request.read_text()):
            answer(what)
            (folder / f".done-{number}").touch()
            number += 1
        if time.monotonic() - watched_s > _WATCH_EVERY_S:
            watched_s = time.monotonic()
            watch()
        time.sleep(_POLL_S)
    watch()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun and all its descendants: politely, then not."""
    descendants: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        descendants = psutil.Process(process.pid).children(recursive=True)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
    for descendant in descendants:
        with contextlib.suppress(psutil.Error):
            descendant.kill()
    if process.poll() is None:
        process.kill()
    process.wait()
    psutil.wait_procs(descendants, timeout=5)


def _tail(log: Path, lines: int = 25) -> str:
    text = log.read_text(errors="replace").strip().splitlines()
    return "\n".join(text[-lines:]) or "(nothing was written)"
