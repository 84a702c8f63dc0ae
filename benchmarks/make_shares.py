"""Makes data/shares-pai4.csv: CPU shares from the mini-batch times of a production job.

Source: Alibaba cluster-trace-gpu-v2020, mini-batch-time, job 4 (CC-BY-4.0).  Speed is the inverse of the normalised
batch time; four of the ten workers are taken, the mean over ten rows is a change, and the fastest gets 0.72 of a core.

Usage: python benchmarks/make_shares.py FOLDER_WITH_job_4_norm.csv
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

WORKERS = ("4", "3", "0", "5")
ROWS, EACH, SECONDS = 480, 10, 2.5
MOST = 0.72


def main(folder: str) -> None:
    """Write the file."""
    times = defaultdict(list)
    with (Path(folder) / "job_4_norm.csv").open() as file:
        for row in csv.DictReader(file):
            times[row["worker"]].append(float(row["batch_time_norm"]))
    speeds = np.array([[1.0 / t for t in times[worker][:ROWS]] for worker in WORKERS])
    means = speeds.reshape(len(WORKERS), -1, EACH).mean(axis=2).T
    shares = np.maximum(MOST * means / means.max(), 0.05)
    with (Path(__file__).parent / "data" / "shares-pai4.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["t_s", *range(len(WORKERS))])
        for k, row in enumerate(shares):
            out.writerow([f"{k * SECONDS:g}", *(f"{share:.3f}" for share in row)])


if __name__ == "__main__":
    main(sys.argv[1])
