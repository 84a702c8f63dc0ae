"""``lbbsp bench predict``: how well each predictor foretells speeds on recorded traces, and what comes of it."""

from __future__ import annotations

import csv
import gzip
import time
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from lbbsp.cli.output import usable_json, write_json
from lbbsp.cli.reproduce.traces import batch_speeds, machines
from lbbsp.core.policy import Proportional
from lbbsp.core.predict import AdaptiveEma, AutoRegressive, Ema, LastValue, Median, Mixture, Observation, Predictor
from lbbsp.core.types import FloatArray
from lbbsp.errors import ConfigurationError
from lbbsp.sim.bsp import SpeedTruth, simulate_bsp

__all__ = ["PREDICTORS", "forecasts", "predict"]

PREDICTORS: dict[str, Predictor[Any]] = {
    "last": LastValue(),
    "ema .2": Ema(alpha=0.2),
    "ema .5": Ema(alpha=0.5),
    "median 5": Median(window=5),
    "adaptive ema": AdaptiveEma(),
    "ar 3": AutoRegressive(order=3),
    "ar 6": AutoRegressive(order=6),
    "mixture": Mixture(),
}
SEEN = 0.6
SAMPLES = 64
"""On each worker, in the simulated efficiency."""


def predict(
    *,
    traces: Path,
    json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """One step ahead on recorded traces: error by the last value's, and the efficiency of proportional sizes.

    The first 60% of a trace are seen, the last 40% scored.

    Parameters
    ----------
    traces
        A folder with alibaba2018/machine_usage.csv.gz, pai/job_1_norm.csv to job_4 and nab/*.csv, or some of them.
    json
        A file for the figures.
    """
    json = usable_json(json)
    found = _traces(traces)
    rows: list[dict[str, Any]] = []
    for trace, speeds in found.items():
        for name, predictor in PREDICTORS.items():
            ratios = error_ratios(speeds, forecasts(predictor, speeds))
            row = {"trace": trace, "predictor": name, "median": float(np.median(ratios)), "worst": float(ratios.max())}
            for risk in (0.0, 0.75):
                policy = Proportional(predictor=predictor, risk=risk)
                total = SAMPLES * speeds.shape[1]
                outcome = simulate_bsp(SpeedTruth(speeds), policy, global_batch_size=total, iterations=len(speeds))
                clairvoyant_s = total / speeds.sum(axis=1)
                row[f"efficiency at risk {risk:g}"] = float(clairvoyant_s.sum() / outcome.iteration_s.sum())
            rows.append(row)
    summary = [
        {
            "predictor": name,
            "median of traces": median(row["median"] for row in rows if row["predictor"] == name),
            "worst": max(row["worst"] for row in rows if row["predictor"] == name),
            "one worker's step and forecast, us": _cost_us(predictor),
        }
        for name, predictor in PREDICTORS.items()
    ]
    write_json(json, "bench predict", {"rows": rows, "summary": summary})
    for title, table_rows in (("By trace", rows), ("Over all traces", summary)):
        table = Table(title=title, title_justify="left")
        for heading in table_rows[0]:
            table.add_column(heading, justify="left" if heading in ("trace", "predictor") else "right")
        for row in table_rows:
            table.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))
        Console().print(table)


def forecasts(predictor: Predictor[Any], speeds: FloatArray) -> FloatArray:
    """What was forecast for each iteration, from those before; shape ``(K, W)``, NaN in the first row."""
    state, out = predictor.init(speeds.shape[1]), np.full(speeds.shape, np.nan)
    for k, row in enumerate(speeds):
        out[k] = predictor.forecast(state).mean
        state = predictor.step(state, Observation.of_speed(row))
    return out


def error_ratios(speeds: FloatArray, ahead: FloatArray) -> FloatArray:
    """Root mean square error by the last value's in the part that is scored; shape ``(W,)``.

    A worker whose speed never changes has no error to compare with: its ratio is 1.
    """
    first = int(SEEN * len(speeds))
    error = np.sqrt(np.mean((ahead[first:] - speeds[first:]) ** 2, axis=0))
    last = np.sqrt(np.mean((speeds[first - 1 : -1] - speeds[first:]) ** 2, axis=0))
    return np.where(last > 0, error / np.where(last > 0, last, 1.0), 1.0)


def _cost_us(predictor: Predictor[Any]) -> float:
    state, speed = predictor.init(1), np.array([100.0])
    spent = []
    for _ in range(300):
        started = time.perf_counter()
        state = predictor.step(state, Observation.of_speed(speed))
        predictor.forecast(state)
        spent.append(time.perf_counter() - started)
    return 1e6 * median(spent)


def _traces(folder: Path) -> dict[str, FloatArray]:
    """The speeds of every known trace in the folder."""
    found: dict[str, FloatArray] = {}
    try:
        usage = folder / "alibaba2018" / "machine_usage.csv.gz"
        if usage.exists():
            found["alibaba2018"] = machines(usage, 4000)
        for path in sorted((folder / "pai").glob("job_*_norm.csv")):
            found[f"pai {path.stem.split('_')[1]}"] = batch_speeds(path)
        columns = []
        for path in sorted((folder / "nab").glob("*.csv")):
            with path.open(newline="", encoding="utf-8") as file:
                columns.append([float(row["value"]) for row in csv.DictReader(file)])
    except (OSError, EOFError, KeyError, ValueError, gzip.BadGzipFile) as error:
        raise ConfigurationError(
            f"--traces {folder}: {type(error).__name__}: {error}; give whole trace files"
        ) from error
    if columns:
        steps = min(map(len, columns))
        found["nab"] = np.maximum(0.05, 1.0 - np.array([column[:steps] for column in columns]).T / 100.0)
    if not found:
        raise ConfigurationError(
            f"--traces {folder}: holds none of alibaba2018/machine_usage.csv.gz, pai/job_*_norm.csv, nab/*.csv"
        )
    return found
