"""Recorded CPU shares of some workers over time, from a CSV file."""

from __future__ import annotations

import csv
import gzip
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from lbbsp.errors import ConfigurationError
from lbbsp.interfere.base import checked_shares

__all__ = ["ShareTrace"]


@dataclass(frozen=True, slots=True)
class ShareTrace:
    """Shares that hold from given times on.

    The file has a header and a row a change, gzipped if its name ends in ``.gz``: ``t_s``, seconds from the start,
    growing; then a column a worker, its share of one core from then on::

        t_s,0,1,2
        0,0.8,0.5,0.3
        20,0.8,0.2,0.3

    Args:
        times_s: K times, the first of them 0.
        shares: K rows of W shares, in cores.
    """

    times_s: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]

    @classmethod
    def read(cls, path: Path, *, largest: float = 1.0) -> ShareTrace:
        """Read a file.

        Args:
            path: of the file.
            largest: upper bound of a share, in cores.

        Raises:
            ConfigurationError: it cannot be read, or breaks the format; names the line.
        """
        try:
            with _opened(path) as file:
                rows = list(csv.reader(file))
        except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
            raise ConfigurationError(f"{path}: cannot be read as a trace of shares ({error})") from error
        if not rows or not rows[0] or rows[0][0].strip() != "t_s" or len(rows[0]) < 2:
            raise ConfigurationError(f"{path}, line 1: the header must be t_s and a column for each worker")
        if len(rows) < 2:
            raise ConfigurationError(f"{path}: no row of shares follows the header")
        times_s: list[float] = []
        shares: list[tuple[float, ...]] = []
        for line, row in enumerate(rows[1:], start=2):
            where = f"{path}, line {line}"
            if len(row) != len(rows[0]):
                raise ConfigurationError(f"{where}: {len(row)} values for {len(rows[0])} columns")
            try:
                time_s, *values = (float(value) for value in row)
            except ValueError as error:
                raise ConfigurationError(f"{where}: {error}") from error
            if not math.isfinite(time_s) or (times_s and time_s <= times_s[-1]) or (not times_s and time_s != 0):
                bound = f"more than {times_s[-1]:g}" if times_s else "0 in the first row"
                raise ConfigurationError(f"{where}: t_s={row[0]} must be {bound} and finite")
            try:
                shares.append(checked_shares(values, largest=largest))
            except ConfigurationError as error:
                raise ConfigurationError(f"{where}: {error}") from error
            times_s.append(time_s)
        return cls(tuple(times_s), tuple(shares))

    @property
    def workers(self) -> int:
        """W."""
        return len(self.shares[0])

    def at(self, time_s: float) -> tuple[float, ...]:
        """The shares in force at a time; the last ones go on for ever."""
        row = sum(1 for t in self.times_s if t <= time_s) - 1
        return self.shares[max(row, 0)]


def _opened(path: Path) -> TextIO:
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")
