"""A part of the report: one table and one figure, written as CSV, Markdown and PNG."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lbbsp.errors import MissingDependencyError

__all__ = ["Context", "Section", "figure_of", "number", "save_figure", "write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What all sections are given.

    Args:
        data: a folder with ``traces``, ``profiles`` and ``datasets``, or with some of them; None for none.
        run: the folder of a demo's real run; None for none.
        seed: of all randomness.
        short: fewer iterations: a first look.
        say: shows what is being done.
    """

    data: Path | None
    run: Path | None
    seed: int
    short: bool
    say: Callable[[str], None] = lambda _: None

    def few(self, iterations: int, short: int) -> int:
        """``iterations``, or ``short`` where a first look is wanted."""
        return short if self.short else iterations

    def find(self, *path: str) -> Path | None:
        """A file or folder of the data, if it is there."""
        found = None if self.data is None else self.data.joinpath(*path)
        return found if found is not None and found.exists() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table and a figure.

    Args:
        name: of the files.
        title: one line.
        columns: headings, with units.
        rows: of strings, numbers or None.
        draw: draws the figure on empty matplotlib axes, ``panels`` of them.
        notes: sentences below the table.
        panels: axes side by side.
        figures: further numbers for the JSON file.
    """

    name: str
    title: str
    columns: list[str]
    rows: list[list[Any]]
    draw: Callable[[list[Any]], None]
    notes: list[str] = field(default_factory=list)
    panels: int = 1
    figures: dict[str, Any] = field(default_factory=dict)


def number(value: Any) -> str:
    """A cell's text: four significant digits, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def markdown(section: Section) -> str:
    """The section as Markdown."""
    lines = [f"## {section.title}", "", f"| {' | '.join(section.columns)} |", "|" + "---|" * len(section.columns)]
    lines += [f"| {' | '.join(number(cell) for cell in row)} |" for row in section.rows]
    lines += ["", f"![{section.title}]({section.name}.png)", ""]
    lines += [f"{note}\n" for note in section.notes]
    return "\n".join(lines)


def figure_of(panels: int) -> tuple[Any, list[Any]]:
    """An empty figure with ``panels`` axes side by side.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            'figures need matplotlib, which is not installed: pip install "lbbsp[report]"'
        ) from error
    figure = Figure(figsize=(5.2 * panels + 1.2, 4.2), layout="constrained")
    return figure, [figure.add_subplot(1, panels, n + 1) for n in range(panels)]


def save_figure(section: Section, path: Path) -> None:
    """Draw it and write it as PNG."""
    figure, axes = figure_of(section.panels)
    section.draw(axes)
    figure.savefig(path, dpi=120)


def write(section: Section, folder: Path) -> None:
    """Write ``NAME.csv``, ``NAME.md`` and ``NAME.png`` into ``folder``."""
    with (folder / f"{section.name}.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(section.columns)
        rows.writerows(section.rows)
    (folder / f"{section.name}.md").write_text(markdown(section), encoding="utf-8")
    save_figure(section, folder / f"{section.name}.png")
