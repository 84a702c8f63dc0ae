"""Real rank processes in a gloo process group, kept over many tests because starting torch takes seconds."""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

TIME_LIMIT_S = 90.0
_pids: set[int] = set()


def pids() -> set[int]:
    """Processes of the pools, and of their children, that the leak check leaves out."""
    return _pids


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _serve(rank: int, workers: int, port: int, timeout_s: float, pipe: Connection) -> None:
    mp.set_start_method("fork", force=True)  # for loader workers, as under torchrun
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    import warnings
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more loader workers than cores
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=workers, timeout=timedelta(seconds=timeout_s))
    pipe.send_bytes(pickle.dumps(("ready", None)))
    while True:
        task = pickle.loads(pipe.recv_bytes())  # a pipe's own send would share tensors' memory between ranks
        if task is None:
            break
        function, arguments = task
        try:
            answer = ("done", function(rank, workers, *arguments))
        except BaseException as error:
            answer = ("failed", (type(error).__name__, str(error), traceback.format_exc()))
        gc.collect()  # what a test left in a cycle goes with the test
        pipe.send_bytes(pickle.dumps(answer))
        del answer
    dist.destroy_process_group()


class RankFailed(Exception):
    """A rank raised; ``outcomes`` holds each rank's ("done", value) or ("failed", (type, message, trace))."""

    def __init__(self, outcomes: list[tuple[str, Any]]) -> None:
        self.outcomes = outcomes
        super().__init__("\n".join(value[2] for kind, value in outcomes if kind == "failed"))


class RankPool:
    """``workers`` processes that run functions ``f(rank, workers, *arguments)`` as ranks of one group."""

    def __init__(self, workers: int, *, timeout_s: float = 60.0) -> None:
        context = mp.get_context("spawn")
        port = free_port()
        self.workers = workers
        self.pipes: list[Connection] = []
        self.processes: list[BaseProcess] = []
        for rank in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, workers, port, timeout_s, theirs), daemon=False)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
            _pids.add(process.pid or 0)
        for rank in range(workers):
            assert self.receive(rank)[0] == "ready"

    def receive(self, rank: int, time_limit_s: float = TIME_LIMIT_S) -> tuple[str, Any]:
        """The next message of a rank."""
        if not wait([self.pipes[rank]], timeout=time_limit_s):
            self.kill()
            raise TimeoutError(f"rank {rank} did not answer within {time_limit_s} s")
        answer: tuple[str, Any] = pickle.loads(self.pipes[rank].recv_bytes())
        return answer

    def send(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Start a task on all ranks."""
        for pipe in self.pipes:
            pipe.send_bytes(pickle.dumps((function, arguments)))

    def outcomes(self, function: Callable[..., Any], *arguments: Any) -> list[tuple[str, Any]]:
        """Run on all ranks; what became of it on each."""
        self.send(function, *arguments)
        return [self.receive(rank) for rank in range(self.workers)]

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run on all ranks; their results, or RankFailed."""
        outcomes = self.outcomes(function, *arguments)
        if any(kind == "failed" for kind, _ in outcomes):
            raise RankFailed(outcomes)
        return [value for _, value in outcomes]

    @property
    def usable(self) -> bool:
        """Whether all ranks are there."""
        return all(process.is_alive() for process in self.processes)

    def kill(self) -> None:
        """End all processes at once, for one of them is stuck."""
        for process in self.processes:
            process.kill()
            process.join()

    def close(self) -> None:
        """End all processes."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            if process.is_alive():
                try:
                    pipe.send_bytes(pickle.dumps(None))
                except OSError:
                    process.kill()
        for process in self.processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self.pipes:
            pipe.close()
