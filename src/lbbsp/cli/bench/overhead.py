"""``lbbsp bench overhead``: what balancing costs where there is nothing to balance."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from lbbsp.cli.demo.launch import WorkersFailedError
from lbbsp.cli.demo.options import checked_whole
from lbbsp.cli.output import usable_json, write_json

__all__ = ["overhead"]

STEPS_MS = (5, 20, 50, 200)


def overhead(
    *,
    workers: int = 2,
    repeats: int = 9,
    json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Balanced over plain DDP step time on equal workers, at steps of about 5 to 200 ms.

    Parameters
    ----------
    workers
        Worker processes; more than there are cores measure the scheduler.
    repeats
        Blocks of steps on each side, in turn; the median of the blocks' paired ratios counts.
    json
        A file for the figures.
    """
    checked_whole("workers", workers, 1, 64)
    checked_whole("repeats", repeats, 1)
    json = usable_json(json)
    with tempfile.TemporaryDirectory(prefix="lbbsp-bench-") as folder:
        result = Path(folder) / "result.json"
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--rdzv-backend=c10d"),
            *("--rdzv-endpoint=127.0.0.1:0", f"--nproc-per-node={workers}"),
            *("-m", "lbbsp.integrations.torch.workload.overhead", str(result), str(repeats)),
            *map(str, STEPS_MS),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise WorkersFailedError(f"the benchmark's processes failed:\n{done.stderr[-3000:]}")
        blocks = msgspec.json.decode(result.read_bytes(), type=dict[str, list[tuple[float, float]]])
    rows = []
    for name, pairs in blocks.items():
        rows.append(
            {
                "step_ms": 1e3 * median(plain for plain, _ in pairs),
                "balanced_ms": 1e3 * median(balanced for _, balanced in pairs),
                "ratio": median(balanced / plain for plain, balanced in pairs),
                "ratios": sorted(balanced / plain for plain, balanced in pairs),
                "aimed_at_ms": float(name),
            }
        )
    write_json(json, "bench overhead", {"workers": workers, "steps": rows})
    table = Table(title=f"Balanced over plain DDP, {workers} equal workers", title_justify="left")
    for heading in ("plain step, ms", "balanced step, ms", "ratio (median of pairs)"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(f"{row['step_ms']:.2f}", f"{row['balanced_ms']:.2f}", f"{row['ratio']:.4f}")
    Console().print(table)
