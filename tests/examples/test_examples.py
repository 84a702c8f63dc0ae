"""The examples run as they are, and do what the documentation says of them."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lbbsp.telemetry import read_run
from tests.support.rank_pool import RankPool

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIME_LIMIT_S = 100.0


def code_of(name: str) -> list[str]:
    """The lines of an example after its docstring."""
    return (EXAMPLES / name).read_text(encoding="utf-8").splitlines()[4:]


def test_a_script_changes_in_few_lines() -> None:
    changes = list(difflib.ndiff(code_of("ddp_before.py"), code_of("ddp_after.py")))
    removed = [line[2:].strip() for line in changes if line[0] == "-" and line[2:].strip()]
    added = [line[2:].strip() for line in changes if line[0] == "+" and line[2:].strip()]
    assert added == [
        "from torch.utils.data import TensorDataset",
        "from lbbsp.torch import LoadBalancer",
        "balancer = LoadBalancer(model, global_batch_size=50)",
        "loader = balancer.data_loader(train_set, seed=0)",
        "loader.set_epoch(epoch)",
    ]
    assert removed == [
        "from torch.utils.data import DataLoader, DistributedSampler, TensorDataset",
        "sampler: DistributedSampler[int] = DistributedSampler(train_set, seed=0)",
        "loader = DataLoader(train_set, batch_size=50 // dist.get_world_size(), sampler=sampler)",
        "sampler.set_epoch(epoch)",
    ]


def test_before_and_after_learn_alike() -> None:
    """Both at once under torchrun, two ranks each: exit status 0, nothing on stderr, nearly the same loss."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--rdzv-backend=c10d"]
    torchrun += ["--rdzv-endpoint=127.0.0.1:0", "--nproc-per-node=2"]
    running = [
        subprocess.Popen(
            [*torchrun, str(EXAMPLES / name)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("ddp_before.py", "ddp_after.py")
    ]
    losses = []
    try:
        for process in running:
            printed, errors = process.communicate(timeout=TIME_LIMIT_S)
            assert process.returncode == 0, errors[-3000:]
            assert not errors, errors[-3000:]
            found = re.findall(r"epoch \d: test loss ([\d.]+), accuracy ([\d.]+)%", printed)
            assert len(found) == 3
            losses.append(float(found[-1][0]))
            assert float(found[-1][1]) > 90
    finally:
        for process in running:
            process.terminate()  # torchrun ends its workers
            process.communicate()
    assert losses[0] == pytest.approx(losses[1], abs=0.05)


def train_example(rank: int, workers: int, name: str, folder: str, calls: list[tuple[str, ...]]) -> str:
    """On a rank: call the ``train`` of an example; what it printed."""
    before = os.getcwd()
    os.chdir(folder)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            example = runpy.run_path(str(EXAMPLES / name))
            for arguments in calls:
                example["train"](*arguments)
    finally:
        os.chdir(before)
    return output.getvalue()


def test_the_slow_rank_gets_less_and_the_losses_stay(ranks: RankPool, tmp_path: Path) -> None:
    calls = [("observe",), ("balanced",)]
    printed = ranks.run(train_example, "slow_rank.py", str(tmp_path), calls)[0]
    found = re.findall(r"(observe|balanced), epoch \d: [\d.]+ s, last loss ([\d.]+), sizes \[([\d, ]+)\]\n", printed)
    assert [mode for mode, *_ in found] == ["observe", "observe", "balanced", "balanced"]
    for (_, loss, equal), (_, same_loss, balanced) in zip(found[:2], found[2:], strict=True):
        assert equal == "13, 13, 12, 12"
        assert sum(int(size) for size in balanced.split(", ")) == 50
        assert float(loss) == pytest.approx(float(same_loss), abs=2e-4)
    decisions = read_run(tmp_path / "runs" / "balanced").decisions[10:]
    usual = np.median([decision.sizes for decision in decisions], axis=0)
    assert usual[1] < min(usual[0], usual[2], usual[3])
    reader = [sys.executable, str(EXAMPLES / "read_record.py"), "runs/observe", "runs/balanced"]
    read = subprocess.run(reader, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert read.count("58 iterations") == 2
    assert "'observing': " in read
    assert re.search(r"from iteration \d+ on \[[\d, ]+\]: worker \d is forecast the slowest", read)


def test_a_policy_of_ones_own_is_used(ranks: RankPool, tmp_path: Path) -> None:
    printed = ranks.run(train_example, "own_policy.py", str(tmp_path), [()])[0]
    assert printed.startswith("Allocation(iteration=20, sizes=array([")
