"""Records a real run under replayed load: each step's true speed, with c and m as sensed before it.

Four processes train the demo's network under torchrun while CPU quotas (or competing processes) follow a trace of
shares; what available CPU and memory each of them senses goes into its record.  The result is a CSV with the columns
iteration, worker, size, compute_s, cpu, memory, where cpu and memory of an iteration are those that were reported
with the iteration before: known before the step, so that a predictor may use them for it.

Usage: python benchmarks/record.py benchmarks/data/shares-pai4.csv OUT.csv.gz [ITERATIONS [SAMPLES [PACE]]]
"""

import csv
import gzip
import os
import sys
import tempfile
from pathlib import Path

from lbbsp.cli.bench.changing import Restarting
from lbbsp.cli.demo.launch import run_job
from lbbsp.integrations.torch.workload.job import Job, folder_of
from lbbsp.interfere import ShareTrace, interfere
from lbbsp.telemetry import read_run


def main(trace: str, out: str, iterations: int = 400, samples: int = 24, pace: float = 1.0) -> None:
    """Run, and write the file."""
    shares = ShareTrace.read(Path(trace))
    with tempfile.TemporaryDirectory() as folder, interfere(shares.shares[0]) as interference:
        job = Job(
            folder=folder,
            segments=["balanced"],
            iterations=iterations,
            global_batch_size=samples * shares.workers,
            restart_shares=True,
            launcher_pid=os.getpid(),
        )
        replays = Restarting(interference, shares, pace)
        try:
            run_job(job, interference, list(shares.shares[0]), answer=replays)
        finally:
            replays.close()
        records = read_run(folder_of(job, 0)).iterations
        print(interference.describe(), f"{replays.refused} changes refused")
    sensed = {(r.iteration + 1, r.rank): (r.cpu, r.memory) for r in records}
    with gzip.open(out, "wt", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["iteration", "worker", "size", "compute_s", "cpu", "memory"])
        for r in sorted(records, key=lambda r: (r.iteration, r.rank)):
            cpu, memory = sensed.get((r.iteration, r.rank), (None, None))
            if r.compute_s is not None and cpu is not None and memory is not None:
                rows.writerow([r.iteration, r.rank, r.size, f"{r.compute_s:.6f}", f"{cpu:.4f}", f"{memory:.4f}"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(float(a) if "." in a else int(a) for a in sys.argv[3:]))
