"""The CUDA paths on a device: run where there is one; their seams are covered without one elsewhere."""

from __future__ import annotations

import math

import pytest
import torch

from lbbsp.core.memory import UpperFit
from lbbsp.integrations.torch.memory import MemoryWatch, probe_for
from lbbsp.integrations.torch.memory.cuda import CudaMemory
from lbbsp.integrations.torch.memory.failure import is_out_of_memory
from lbbsp.integrations.torch.timing import CudaStopwatch, stopwatch_for

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", 0)


def test_memory_statistics(device: torch.device) -> None:
    probe = probe_for(device)
    assert isinstance(probe, CudaMemory)
    before = probe.read()
    block = torch.empty(256 * 2**20, dtype=torch.uint8, device=device)
    after = probe.read()
    assert before is not None
    assert after is not None
    assert after.held_bytes - before.held_bytes >= block.numel()
    assert after.held_bytes <= after.peak_bytes <= after.limit_bytes <= after.total_bytes
    assert probe.name.endswith(" MiB")


def test_the_watch_bounds_a_real_batch(device: torch.device) -> None:
    layer = torch.nn.Linear(4096, 4096, device=device)
    watch = MemoryWatch(probe_for(device), UpperFit())
    cap = math.inf
    for size in (256, 512, 1024):
        watch.begin()
        layer(torch.ones(size, 4096, device=device)).relu().sum().backward()
        cap = watch.end(size)
    fixed, per_sample = watch.fit.line(watch.state)
    assert per_sample >= 4096 * 4
    assert fixed + per_sample * 1024 >= torch.cuda.max_memory_allocated(device) * 0.99
    assert 1024 <= cap <= 2048


def test_running_out_is_recognised(device: torch.device) -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        torch.empty(2**50, dtype=torch.uint8, device=device)
    assert is_out_of_memory(caught.value)


def test_events_measure_the_device(device: torch.device) -> None:
    stopwatch = stopwatch_for(device)
    assert isinstance(stopwatch, CudaStopwatch)
    square = torch.ones(4096, 4096, device=device)
    laps = []
    for _ in range(4):
        stopwatch.start()
        for _ in range(20):
            square = (square @ square).clamp(max=1.0)
        laps.append(stopwatch.stop(32))
        torch.cuda.synchronize(device)
    assert math.isnan(laps[0].seconds), "an event is read one iteration later"
    assert all(lap.size == 32 and lap.seconds > 0 for lap in laps[1:])
