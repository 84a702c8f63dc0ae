"""Print what recorded runs come to, and the decisions that moved sizes.

python examples/read_record.py runs/observe runs/balanced
"""

import sys

import numpy as np

from lbbsp.report import series_of, summarise
from lbbsp.telemetry import read_run


def main(folder: str) -> None:
    run = read_run(folder)
    series = series_of(run, drop_first=2)  # the first iterations are no measure of the rest
    summary = summarise(series)
    slowest_s = series.compute_s.max(axis=1)
    to_save = np.nanmedian((slowest_s - series.oracle_s) / series.iteration_s)
    print(f"{folder}: {summary.iterations} iterations of {summary.iteration_s * 1000:.0f} ms")
    print(f"  {summary.samples_per_s:.0f} samples/s")
    print(f"  each rank's speed, samples/s: {[round(v) for v in summary.speeds_samples_per_s]}")
    print(f"  each rank's time spent waiting for others: {[f'{share:.0%}' for share in summary.idle_share]}")
    print(f"  of an iteration, a perfect split could still save: {to_save:.0%}")
    print(f"  forecasts were off by (median): {summary.forecast.median_abs:.1%}")
    print(f"  decisions: {summary.reasons}")
    for decision in [d for d in run.decisions if d.moved][:3]:
        print(f"  from iteration {decision.iteration} on {decision.sizes}: {decision.detail}")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        main(argument)
