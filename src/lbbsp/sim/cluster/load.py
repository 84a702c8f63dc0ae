"""From a TOML file to a cluster, with errors that name the file, the key and the remedy."""

from __future__ import annotations

import csv
import math
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lbbsp.core.types import FloatArray
from lbbsp.errors import ConfigurationError
from lbbsp.sim.cluster.build import Cluster, build, check_size
from lbbsp.sim.cluster.schema import ClusterSpec, TraceSpec

__all__ = ["cluster_of", "load_cluster"]

_REMEDIES = (
    ("unknown field", "remove it, or correct its name"),
    ("missing required field", "add it"),
    ("Expected `array` of length >=", "give at least that many"),
    ("Expected", "give such a value"),
)


def load_cluster(path: str | Path, *, iterations: int | None = None) -> Cluster:
    """The cluster that the TOML file describes; files that it names are looked for beside it.

    Args:
        path: of the file.
        iterations: instead of the file's.

    Raises:
        ConfigurationError: the file cannot be read, is no TOML, or describes no possible cluster.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read ({error}); name a cluster file in TOML") from error
    return cluster_of(text, name=str(path), folder=path.parent, iterations=iterations)


def cluster_of(text: str, *, name: str = "cluster", folder: Path = Path(), iterations: int | None = None) -> Cluster:
    """The cluster that ``text``, in TOML, describes.

    Raises:
        ConfigurationError: as `load_cluster`.

    Example:
        >>> cluster_of('''
        ... global_batch_size = 40
        ... iterations = 100
        ... workers = [{speed_samples_per_s = 30.0}, {speed_samples_per_s = 10.0}]
        ... ''').workers
        2
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name}: no valid TOML: {error}; correct that line") from error
    try:
        spec = msgspec.convert(raw, ClusterSpec)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$")
        key = where.rstrip("`").lstrip(".") or "the top level"
        remedy = next((r for start, r in _REMEDIES if start in problem), "correct it")
        raise ConfigurationError(f"{name}: {key}{_value_at(raw, key)}: {problem}; {remedy}") from error
    if iterations is not None:
        spec = msgspec.structs.replace(spec, iterations=iterations)
    check_size(spec, name)
    traces: dict[int, FloatArray] = {}
    for n, worker in enumerate(spec.workers):
        if worker.trace is not None:
            with _located(name, f"workers[{n}].trace"):
                traces[n] = _values(worker.trace, folder, spec.iterations)
    return build(spec, traces, name)


def _value_at(raw: Any, key: str) -> str:
    """`` = value`` of a key such as ``workers[0].noise``, if there is a plain one."""
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", key):
        try:
            raw = raw[int(index) if index else name]
        except (KeyError, IndexError, TypeError):
            return ""
    return f" = {raw!r}" if isinstance(raw, int | float | str) else ""


@contextmanager
def _located(name: str, key: str) -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {key}: {error}") from error


def _values(trace: TraceSpec, folder: Path, iterations: int) -> FloatArray:
    """The trace, a value an iteration, shape ``(K,)``."""
    if (trace.values is None) == (trace.file is None):
        raise ConfigurationError("give either values, or file and column")
    values = np.array(trace.values if trace.file is None else _column(folder / trace.file, trace.column), dtype=float)
    if not values.size:
        raise ConfigurationError("the trace is empty: give at least one value")
    least, what = (0.0, "0 to 100") if trace.kind == "cpu_percent" else (5e-324, "positive")
    most = 100.0 if trace.kind == "cpu_percent" else math.inf
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= least) & (values <= most)))
    if bad.size:
        raise ConfigurationError(
            f"value {bad[0]} is {values[bad[0]]}: a {trace.kind} must be {what} and finite; correct or interpolate it"
        )
    if trace.kind == "cpu_percent":
        values = np.maximum(0.05, 1 - values / 100)
    course = np.repeat(values[:iterations], min(trace.hold, iterations))
    if course.size < iterations:
        if not trace.repeat:
            raise ConfigurationError(
                f"{values.size} values, each held for {trace.hold} iterations, are {course.size} of {iterations} "
                "iterations; lower iterations, raise hold, or set repeat = true"
            )
        course = np.resize(course, iterations)
    return course[:iterations]


def _column(path: Path, column: str | None) -> list[float]:
    """A column of a CSV file."""
    if column is None:
        raise ConfigurationError(f"file {path}: name its column too")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if column not in (reader.fieldnames or ()):
                raise ConfigurationError(
                    f"file {path} has no column {column!r}; choose one of {', '.join(reader.fieldnames or ())}"
                )
            values = []
            for row in reader:
                try:
                    values.append(float(row[column]))
                except (TypeError, ValueError) as error:
                    raise ConfigurationError(
                        f"file {path}, line {reader.line_num}, column {column}: {row[column]!r} is no number; "
                        "correct it"
                    ) from error
            return values
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"file {path} cannot be read ({error}); it is looked for beside the cluster file"
        ) from error
