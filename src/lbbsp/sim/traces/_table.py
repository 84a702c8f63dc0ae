"""Read a table of numbers from a CSV file, gzipped or not, and say precisely what is wrong with it."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lbbsp.core.arrays import FloatArray
from lbbsp.errors import ConfigurationError

__all__ = ["read_numbers", "read_rows"]


def read_rows(path: Path, columns: Sequence[str], *, header: Sequence[str] | None = None) -> list[tuple[str, ...]]:
    """The cells of ``columns``, row by row.

    Args:
        path: the file; ``.gz`` is unpacked.
        columns: wanted, by name.
        header: the names of all columns where the file has no line of them.

    Raises:
        ConfigurationError: the file cannot be read, is cut short, lacks a column, or a row lacks a cell.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (EOFError, zlib.error) as error:
        raise ConfigurationError(f"{path}: the gzip file is cut short or damaged ({error}); copy it again") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not text in UTF-8 ({error.reason}); is it compressed?") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from error
    lines = csv.reader(io.StringIO(text))
    names = list(header) if header is not None else [name.strip() for name in next(lines, [])]
    missing = [name for name in columns if name not in names]
    if missing:
        raise ConfigurationError(f"{path}: no column {', '.join(missing)}; there are {', '.join(names) or 'none'}")
    at = [names.index(name) for name in columns]
    rows = []
    for n, cells in enumerate(lines, start=1 if header is not None else 2):
        if not cells:
            continue
        if len(cells) <= max(at):
            raise ConfigurationError(f"{path}, line {n}: {len(cells)} cells where {len(names)} are due; cut short?")
        rows.append(tuple(cells[i] for i in at))
    if len(rows) < 2:
        raise ConfigurationError(f"{path}: {len(rows)} row(s) of data; a trace needs 2 or more")
    return rows


def read_numbers(
    cells: Sequence[str], path: Path, column: str, *, least: float = 0.0, blank: bool = False
) -> FloatArray:
    """Numbers from the cells of one column.

    Args:
        cells: as in the file.
        path: for errors.
        column: for errors.
        least: the least that is allowed.
        blank: whether a cell may be empty, which gives NaN.

    Raises:
        ConfigurationError: a cell is no finite number, or below ``least``.
    """
    out = np.empty(len(cells))
    for n, cell in enumerate(cells):
        if blank and not cell.strip():
            out[n] = math.nan
            continue
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least:
            raise ConfigurationError(
                f"{path}: {column} is {cell!r} in row {n + 1} of the data; give a finite number of {least:g} or more"
            )
        out[n] = value
    return out
