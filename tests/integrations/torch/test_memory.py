"""Probes, the watch over peaks, the file of caps, and what counts as out of memory, without any GPU."""

from __future__ import annotations

import json
import math
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lbbsp.core.memory import PeakState, UpperFit
from lbbsp.errors import BatchTooLargeError, ConfigurationError, InfeasibleBoundsError
from lbbsp.integrations.torch.memory import Memory, MemoryWatch, explained, probe_for
from lbbsp.integrations.torch.memory.base import Reading
from lbbsp.integrations.torch.memory.caps_file import KeptCap, read_cap, write_cap
from lbbsp.integrations.torch.memory.cgroup import cgroup_room_and_limit_bytes
from lbbsp.integrations.torch.memory.cuda import CudaMemory
from lbbsp.integrations.torch.memory.failure import (
    Breakable,
    FailureDesk,
    InWork,
    abort_on_device,
    is_out_of_memory,
    unwatch_uncaught,
    watch_uncaught,
)
from lbbsp.integrations.torch.memory.resident import ResidentMemory

MB = 2.0**20
CPU_TEXT = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"


# -- probes --------------------------------------------------------------------------------------------------------


def test_resident_memory_of_this_process() -> None:
    probe = ResidentMemory(ranks_here=1)
    before = probe.read()
    assert before is not None
    block = np.ones(64 * 2**20, dtype=np.uint8)
    after = probe.read()
    assert after is not None
    assert after.held_bytes - before.held_bytes > 0.9 * block.nbytes
    assert after.held_bytes <= after.peak_bytes <= after.total_bytes
    assert before.held_bytes < before.limit_bytes <= before.total_bytes * 1.01
    assert probe.name == ResidentMemory(ranks_here=2).name


def fake_proc(folder: Path, *, version: int, limits: list[str]) -> Path:
    """A /proc and cgroups of which the outermost comes first in ``limits``."""
    proc, mount = folder / "proc", folder / "cgroup"
    inner = mount
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for depth, limit in enumerate(limits):
        inner = inner / f"g{depth}" if depth else mount
        inner.mkdir(parents=True, exist_ok=True)
        (inner / names[0]).write_text(limit + "\n")
        (inner / names[1]).write_text(f"{500 * 2**20}\n")
        (inner / "memory.stat").write_text(f"{'inactive_file' if version == 2 else 'total_inactive_file'} {2**20}\n")
        (inner / "cgroup.controllers").write_text("cpu memory\n")
    (proc / "self").mkdir(parents=True)
    path = "/" + "/".join(f"g{depth}" for depth in range(1, len(limits)))
    kind = "cgroup2 cgroup rw" if version == 2 else "cgroup cgroup rw,memory"
    (proc / "self/cgroup").write_text(f"0::{path}\n" if version == 2 else f"3:memory:{path}\n0::/\n")
    (proc / "self/mountinfo").write_text(f"30 20 0:26 / {mount} rw shared:9 - {kind}\n")
    (proc / "self/status").write_text("Name:\tx\nVmSize:\t 900000 kB\nVmHWM:\t 400000 kB\nVmRSS:\t 300000 kB\n")
    (proc / "meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\nHugePages_Total: 0\n")
    return proc


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_cgroup_counts(tmp_path: Path, version: int) -> None:
    none = "max" if version == 2 else str(2**63 - 4096)
    proc = fake_proc(tmp_path, version=version, limits=[none, str(700 * 2**20), str(2000 * 2**20)])
    assert cgroup_room_and_limit_bytes(proc) == (201 * MB, 700 * MB)
    alone, two = ResidentMemory(ranks_here=1, proc=proc).read(), ResidentMemory(ranks_here=2, proc=proc).read()
    assert alone is not None
    assert two is not None
    assert alone == Reading(300000 * 1024.0, 400000 * 1024.0, 300000 * 1024.0 + 201 * MB, 700 * MB)
    assert two.limit_bytes == 300000 * 1024.0 + 201 * MB / 2, "ranks of one host share what is free"


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    proc = fake_proc(tmp_path, version=2, limits=["max"])
    reading = ResidentMemory(ranks_here=3, proc=proc).read()
    assert reading is not None
    assert reading.limit_bytes == (300000 + 6000000 / 3) * 1024
    assert reading.total_bytes == 8000000 * 1024


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert ResidentMemory(ranks_here=1, proc=tmp_path).read() is None
    assert ResidentMemory(ranks_here=1, proc=tmp_path).name
    assert cgroup_room_and_limit_bytes(tmp_path) == (math.inf, math.inf)


class FakeCuda:
    """A device of 1000 MB, of which others hold 100, this process 300 (50 of them not handed out)."""

    def __init__(self, fraction: float = 1.0) -> None:
        self.fraction, self.allocated, self.peak, self.reserved = fraction, 250 * MB, 280 * MB, 300 * MB

    def mem_get_info(self, device: Any) -> tuple[float, float]:
        return 1000 * MB - 100 * MB - self.reserved, 1000 * MB

    def memory_reserved(self, device: Any) -> float:
        return self.reserved

    def memory_allocated(self, device: Any) -> float:
        return self.allocated

    def max_memory_allocated(self, device: Any) -> float:
        return self.peak

    def get_per_process_memory_fraction(self, device: Any) -> float:
        return self.fraction

    def get_device_properties(self, device: Any) -> Any:
        return SimpleNamespace(name="Some GPU", total_memory=1000 * 2**20)


def test_cuda_memory_through_the_seam() -> None:
    device = torch.device("cuda", 0)
    probe = CudaMemory(device, cuda=FakeCuda())
    assert probe.read() == Reading(250 * MB, 280 * MB, 900 * MB, 1000 * MB)
    assert probe.name == "Some GPU 1000 MiB"
    halved = CudaMemory(device, cuda=FakeCuda(fraction=0.5)).read()
    assert halved is not None
    assert halved.limit_bytes == 500 * MB


def test_the_stand_in_has_only_what_torch_has() -> None:
    for name in (n for n in vars(FakeCuda) if not n.startswith("_")):
        assert hasattr(torch.cuda, name), name
    assert isinstance(probe_for(torch.device("cpu")), ResidentMemory)
    assert isinstance(probe_for(torch.device("cuda", 0)), CudaMemory)


# -- the watch -----------------------------------------------------------------------------------------------------


class Device:
    """A memory that a batch of x samples fills up to ``fixed + each x``, with a mark that only rises."""

    name = "device"

    def __init__(self, limit: float) -> None:
        self.limit, self.peak, self.held, self.fails = limit, 0.0, 100.0, False

    def run(self, size: int) -> None:
        self.peak = max(self.peak, 300.0 + 10.0 * size)

    def read(self) -> Reading | None:
        return None if self.fails else Reading(self.held, self.peak, self.limit, self.limit)


def run(watch: MemoryWatch, device: Device, size: int) -> float:
    watch.begin()
    device.run(size)
    return watch.end(size)


def test_the_watch_learns_from_growing_peaks() -> None:
    device = Device(1000.0)
    watch = MemoryWatch(device, UpperFit(margin=0.0))
    assert run(watch, device, 10) == 20, "twice what has been run, though there is room for 36"
    assert run(watch, device, 20) == 40
    assert run(watch, device, 12) == 40, "a mark that does not rise teaches nothing"
    assert watch.state.sizes == (10, 20)
    assert run(watch, device, 40) == 70, "(1000 - 300) / 10, the true bound"


def test_a_mark_that_rose_between_batches_is_no_batchs() -> None:
    device = Device(1000.0)
    watch = MemoryWatch(device, UpperFit(margin=0.0))
    run(watch, device, 10)
    device.peak = 900.0  # an evaluation
    run(watch, device, 12)
    assert watch.state.sizes == (10,)
    assert watch.state.largest == 12
    assert watch.state.peaks_bytes == (400.0,)


def test_a_probe_that_fails_leaves_the_cap_open() -> None:
    device = Device(1000.0)
    device.fails = True
    watch = MemoryWatch(device, UpperFit())
    assert run(watch, device, 10) == math.inf


# -- the file of caps ------------------------------------------------------------------------------------------------

KEPT = KeptCap(cap=38, size=48, iteration=3, memory="a")


def test_caps_are_kept_a_rank(tmp_path: Path) -> None:
    path = tmp_path / "new" / "caps.json"
    assert read_cap(path, rank=0, memory="a") is None
    ranks = [threading.Thread(target=write_cap, args=(path,), kwargs={"rank": r, "kept": KEPT}) for r in range(8)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    write_cap(path, rank=3, kept=replace(KEPT, cap=30))
    assert [(read_cap(path, rank=r, memory="a") or KEPT).cap for r in range(8)] == [38, 38, 38, 30, 38, 38, 38, 38]
    assert read_cap(path, rank=9, memory="a") is None
    assert read_cap(path, rank=1, memory="other memory") is None
    assert [p.name for p in path.parent.iterdir()] == ["caps.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no file of memory caps"),
        ('{"schema": 7}', "has schema 7"),
        ('{"schema": 1, "caps": {"0": 4}}', "is no"),
    ],
)
def test_another_file_is_refused_and_left_alone(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "caps.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_cap(path, rank=0, memory="a")
    with pytest.raises(ConfigurationError, match=message):
        write_cap(path, rank=0, kept=KEPT)
    assert path.read_text() == text


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder"):
        Memory(caps_file=tmp_path)
    with pytest.raises(ConfigurationError, match="margin=2"):
        Memory(margin=2)


def test_an_infeasible_sum_names_each_cap() -> None:
    error = InfeasibleBoundsError("global batch 64 > 50; take 50 or less")
    text = str(explained(error, [(None, ""), (20, "limits"), (30, "it ran out of memory with 40, says caps.json")]))
    assert text.startswith("global batch 64 > 50; take 50 or less; caps of rank 1: 20 (limits), rank 2: 30 (it ran out")
    assert "micro_batches=True" in text
    assert explained(error, [(None, "")]) is error


# -- running out -----------------------------------------------------------------------------------------------------


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """As it looks once caught."""
    try:
        raise error from cause
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError(CPU_TEXT), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (raised(ValueError("loader"), MemoryError()), True),
        (RuntimeError("shapes differ"), False),
        (ValueError("out of memory"), False),
        (BatchTooLargeError("known", rank=0), False),
        (None, False),
    ],
)
def test_what_counts_as_out_of_memory(error: BaseException | None, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


class Board:
    """What ranks have announced."""

    def __init__(self) -> None:
        self.text: str | None = None

    def announce(self, text: str) -> str:
        self.text = self.text or text
        return self.text

    def announced(self) -> str | None:
        return self.text


def desk_of(board: Board, rank: int, caps_file: Path | None = None, **options: Any) -> FailureDesk:
    fit, state = UpperFit(margin=0.0), PeakState(sizes=(4, 6, 8), peaks_bytes=(140.0, 160.0, 180.0), largest=8)
    given = {
        "in_work": lambda: InWork(32, 7),
        "known": lambda: (fit, state, 250.0),
        "memory": lambda: "a",
        "outlook": lambda cap: "",
    }
    return FailureDesk(board, rank=rank, caps_file=caps_file, **{**given, **options})


def test_the_error_names_rank_batch_and_cap_here_and_elsewhere() -> None:
    board = Board()
    failed, other = desk_of(board, 2), desk_of(board, 0)
    assert other.translated(RuntimeError("something else")) is None
    error = failed.translated(RuntimeError(CPU_TEXT))
    assert error is not None
    assert (error.rank, error.size, error.cap) == (2, 32, 15)  # (250 - 100) / 10
    assert str(error).endswith(
        "its cap is now 15 samples: start again from the last checkpoint with Limits(max_size=15) on it"
    )
    elsewhere = other.translated(RuntimeError("Connection closed by peer"))
    assert str(elsewhere) == str(error)
    assert failed.translated(RuntimeError("and then this")) is error
    assert failed.translated(error) is None


def test_two_that_fail_at_once_tell_one_story() -> None:
    board = Board()
    first, second = desk_of(board, 0), desk_of(board, 1)
    assert str(first.translated(MemoryError())) == str(second.translated(MemoryError()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_work": lambda: None}, "rank 1 ran out of memory outside the loop over its batches (MemoryError: )"),
        ({"known": lambda: (UpperFit(), PeakState(), math.nan), "in_work": lambda: InWork(1, 0)}, "not even one fits"),
        ({"outlook": lambda cap: f"; caps sum to {cap}"}, "; caps sum to 15"),
        ({"caps_file": Path("/proc/none/caps.json")}, "could not be kept ("),
    ],
)
def test_other_messages(options: dict[str, Any], message: str) -> None:
    error = desk_of(Board(), 1, **options).translated(MemoryError())
    assert message in str(error)


def test_uncaught_errors_are_translated_and_the_hook_goes(capsys: pytest.CaptureFixture[str]) -> None:
    before, board = sys.excepthook, Board()
    desk = desk_of(board, 1)
    watch_uncaught(desk)
    try:
        for error in (ValueError("mine"), RuntimeError(CPU_TEXT)):
            sys.excepthook(type(error), error, None)
    finally:
        unwatch_uncaught(desk)
    assert sys.excepthook is before
    shown = capsys.readouterr().err
    assert "ValueError: mine" in shown
    assert "BatchTooLargeError: rank 1 ran out of memory with 32 samples in iteration 7" in shown
    assert json.loads(board.text or "")["cap"] == 15


def test_breakable_waits() -> None:
    waits = Breakable()
    done: torch.futures.Future[Any] = torch.futures.Future()
    whole, never = waits(done), waits(torch.futures.Future())
    done.set_result([1])
    assert whole.wait() == ([1], None)
    assert not never.done()
    waits.break_all()
    assert never.wait() == (None, None)
    assert waits(torch.futures.Future()).wait() == (None, None), "and those to come"


def test_a_device_groups_work_is_aborted_on_devices_only() -> None:
    calls: list[str] = []
    backend = SimpleNamespace(abort=lambda: calls.append("abort"))
    group = SimpleNamespace(_get_backend=lambda device: backend)
    abort_on_device(group, torch.device("cpu"))
    assert not calls
    abort_on_device(group, torch.device("cuda", 0))
    assert calls == ["abort"]
    abort_on_device(SimpleNamespace(_get_backend=lambda device: object()), torch.device("cuda", 0))


def test_errors_survive_pickling() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(BatchTooLargeError("m", rank=1, size=2, cap=3)))
    assert (str(error), error.rank, error.size, error.cap) == ("m", 1, 2, 3)
