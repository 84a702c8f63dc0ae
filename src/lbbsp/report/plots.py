"""Draws series: batch sizes, compute times and waits, a column a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lbbsp.errors import ConfigurationError, MissingDependencyError
from lbbsp.report.series import FloatArray, Series
from lbbsp.report.summary import summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Mark", "Segment", "draw", "save_png"]

# Okabe and Ito's colours, told apart by colour-blind readers, without their yellow (too pale on white).
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#7F7F7F")
_MARKERS = "osD^vP*X"
_TEXT, _MUTED, _GRID = "#222222", "#666666", "#E6E6E6"
_ROWS = (
    ("sizes", "Batch size\n(samples)"),
    ("compute_s", "Compute\n(seconds)"),
    ("wait_s", "Idle: wait for\nothers (seconds)"),
)
_MOST_POINTS = 400
_MOST_NAMED = 16
_FEW_POINTS = 25
_MARK_ROWS = 3


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at an iteration, such as "shares change"; drawn as a vertical line."""

    iteration: int
    label: str


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Segment:
    """One column of the picture.

    Args:
        title: what was run, e.g. "Plain DDP".
        series: its data.
        marks: what happened when.
    """

    title: str
    series: Series
    marks: tuple[Mark, ...] = ()


def draw(segments: Sequence[Segment], *, title: str = "", cpu_shares: Sequence[float] | None = None) -> Figure:
    """A figure with a column a segment and three rows that share their scales.

    The rows are each worker's batch size, compute seconds and wait for the others.  It touches none of
    pyplot's state.  Of long series it shows medians over a few iterations.

    Args:
        segments: one or two, e.g. the plain run and the balanced one.
        title: over all.
        cpu_shares: each worker's, for the legend.

    Raises:
        ConfigurationError: not one or two segments, or not a share for each worker.
        MissingDependencyError: matplotlib is not installed.
    """
    if not 1 <= len(segments) <= 2:
        raise ConfigurationError(f"{len(segments)} segments: one or two can be drawn side by side")
    workers = max(segment.series.workers for segment in segments)
    if cpu_shares is not None and len(cpu_shares) != workers:
        raise ConfigurationError(f"{len(cpu_shares)} CPU shares for {workers} workers: give one a worker")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError('pictures need matplotlib: pip install "lbbsp[report]"') from error
    figure = Figure(figsize=(9, 7), layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)  # type: ignore[union-attr, call-arg]
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, len(segments), sharex="col", sharey="row", squeeze=False)
    colours = _colours(workers)
    for column, segment in enumerate(segments):
        for row, (field, _) in enumerate(_ROWS):
            _panel(axes[row, column], segment, getattr(segment.series, field), colours)
        _head(axes[0, column], segment)
        axes[2, column].set_xlabel("Iteration", color=_TEXT, fontsize=10)
        _note_equal_sizes(axes[0, column], segment.series)
    for row, (_, label) in enumerate(_ROWS):
        axes[row, 0].set_ylabel(label, color=_TEXT, fontsize=10)
        axes[row, 0].set_ylim(*_limits(segments, _ROWS[row][0]))
    figure.align_ylabels(axes[:, 0])
    fullest = max(range(len(segments)), key=lambda column: segments[column].series.workers)
    _legend(figure, axes[0, fullest], cpu_shares)
    if title:
        figure.suptitle(title, color=_TEXT, fontsize=13, fontweight="bold")
    return figure


def save_png(figure: Figure, path: str | Path, *, width_px: int = 1350) -> Path:
    """Write the figure, ``width_px`` wide, and return its path; directories are made as needed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=width_px / figure.get_figwidth())
    return path


def _panel(axes: Axes, segment: Segment, values: FloatArray, colours: Sequence[str]) -> None:
    x, y = _thinned(segment.series.iterations.astype(np.float64), values)
    few, many = x.size <= _FEW_POINTS, len(colours) > len(_COLOURS)
    for worker in range(y.shape[1]):
        axes.plot(
            x,
            y[:, worker],
            label=f"worker {worker}",
            color=colours[worker],
            linewidth=1.0 if many else 1.7,
            marker=_MARKERS[worker % len(_MARKERS)] if few else "",
            markersize=4,
            solid_joinstyle="round",
        )
    if x.size:
        margin = max(0.5, 0.02 * (x[-1] - x[0]))
        axes.set_xlim(x[0] - margin, x[-1] + margin)
    for mark in segment.marks:
        axes.axvline(mark.iteration, color=_MUTED, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_facecolor("white")
    axes.grid(visible=True, color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_TEXT, labelsize=9, length=3)
    axes.locator_params(axis="x", integer=True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#AAAAAA")


def _head(axes: Axes, segment: Segment) -> None:
    summary = summarise(segment.series)
    idle = np.array([share for share in summary.idle_share if np.isfinite(share)])
    known = [f"{_short(summary.iteration_s)} s an iteration"] if np.isfinite(summary.iteration_s) else []
    known += [f"{_short(summary.samples_per_s)} samples/s"] if np.isfinite(summary.samples_per_s) else []
    known += [f"idle {idle.mean():.0%}"] if idle.size else []
    axes.set_title(segment.title, loc="left", color=_TEXT, fontsize=11.5, fontweight="bold", pad=22)
    axes.annotate(
        "  ·  ".join(known),
        xy=(0, 1),
        xytext=(0, 8),
        xycoords="axes fraction",
        textcoords="offset points",
        color=_MUTED,
        fontsize=9.5,
    )
    middle = sum(axes.get_xlim()) / 2
    for number, mark in enumerate(segment.marks):
        left = mark.iteration > middle
        axes.annotate(
            mark.label,
            xy=(mark.iteration, 1),
            xytext=(-5 if left else 5, -2 - 13 * (number % _MARK_ROWS)),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right" if left else "left",
            va="top",
            color=_MUTED,
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        )


def _note_equal_sizes(axes: Axes, series: Series) -> None:
    """Say where all workers' lines lie on each other."""
    sizes = series.sizes[np.isfinite(series.sizes).all(axis=1)]
    if series.workers > 1 and sizes.size and np.ptp(sizes, axis=1).max() <= 1:
        least, most = sizes[0].min(), sizes[0].max()
        axes.annotate(
            f"all {series.workers} workers: {most:.0f}" if least == most else f"{least:.0f} or {most:.0f} each",
            xy=(series.iterations[0], most),
            xytext=(2, 6),
            textcoords="offset points",
            color=_TEXT,
            fontsize=9.5,
        )


def _limits(segments: Sequence[Segment], field: str) -> tuple[float, float]:
    """From just below zero, so that heights compare and lines at 0 show; room for marks' labels above."""
    values = np.concatenate([getattr(segment.series, field).ravel() for segment in segments])
    values = values[np.isfinite(values)]
    top = float(values.max()) if values.size else 0.0
    labels = min(max(len(segment.marks) for segment in segments), _MARK_ROWS)
    room = 1.1 + 0.12 * labels if field == "sizes" else 1.08
    top = top if top > 0 else 1.0
    return -0.03 * top, room * top


def _short(value: float) -> str:
    """Three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def _thinned(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """At most ``_MOST_POINTS`` points, each the median over as many neighbours as that takes."""
    width = -(-x.size // _MOST_POINTS)
    if width <= 1:
        return x, y
    groups = [slice(start, start + width) for start in range(0, x.size, width)]
    medians = np.full((len(groups), y.shape[1]), np.nan)
    for row, group in enumerate(groups):
        known = np.isfinite(y[group]).any(axis=0)
        medians[row, known] = np.nanmedian(y[group][:, known], axis=0)
    return np.array([x[group].mean() for group in groups]), medians


def _colours(workers: int) -> list[str]:
    if workers <= len(_COLOURS):
        return list(_COLOURS[:workers])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](share)) for share in np.linspace(0.0, 0.92, workers)]


def _legend(figure: Figure, axes: Axes, cpu_shares: Sequence[float] | None) -> None:
    lines, labels = axes.get_legend_handles_labels()
    if cpu_shares is not None:
        labels = [f"{label} · CPU share {share:.3g}" for label, share in zip(labels, cpu_shares, strict=True)]
    named = list(range(len(lines)))
    if len(lines) > _MOST_NAMED:
        named = sorted({round(i) for i in np.linspace(0, len(lines) - 1, 8)})
    figure.legend(
        [lines[i] for i in named],
        [labels[i] for i in named],
        loc="outside lower center",
        ncols=min(len(named), 4),
        frameon=False,
        handlelength=1.5,
        columnspacing=1.6,
        fontsize=9.5,
        labelcolor=_TEXT,
    )
