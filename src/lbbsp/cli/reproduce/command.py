"""The reproduce command."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lbbsp.cli.output import usable_json, write_json
from lbbsp.cli.reproduce.cost import decisions, scale
from lbbsp.cli.reproduce.hardware import cpu, gpu, recorded_traces
from lbbsp.cli.reproduce.maps import maps
from lbbsp.cli.reproduce.prediction import predictors, sensitivity
from lbbsp.cli.reproduce.section import Context, Section, figure_of, markdown, write
from lbbsp.cli.reproduce.statistical import statistical
from lbbsp.cli.reproduce.validation import segments, validation
from lbbsp.errors import ConfigurationError

__all__ = ["SECTIONS", "reproduce"]

SECTIONS: dict[str, Callable[[Context], Section]] = {
    "cpu": cpu,
    "gpu": gpu,
    "traces": recorded_traces,
    "statistical": statistical,
    "predictors": predictors,
    "sensitivity": sensitivity,
    "maps": maps,
    "decisions": decisions,
    "scale": scale,
    "validation": validation,
}


def reproduce(
    *,
    out: Path,
    data: Path | None = None,
    run: Path | None = None,
    only: list[str] | None = None,
    seed: int = 0,
    short: bool = False,
    json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Repeat the paper's comparisons in simulation: a table (CSV, Markdown) and a figure each.

    Parameters
    ----------
    out
        A folder for the tables, the figures and report.md; made if need be, files of the same names replaced.
    data
        A folder with traces/, profiles/ and datasets/; without it, made-up clusters and the digits alone.
    run
        The --out folder of a demo, to compare the simulator with.
    only
        A comparison, instead of all of them; may be given several times.
    seed
        Of all randomness.
    short
        Few iterations: a first look.
    json
        A file for the figures.
    """
    json = usable_json(json)
    names = list(dict.fromkeys(only or SECTIONS))
    for name in names:
        if name not in SECTIONS:
            raise ConfigurationError(f"--only {name}: choose of {', '.join(SECTIONS)}")
    if seed < 0:
        raise ConfigurationError(f"--seed {seed}: must be 0 or more")
    if data is not None and not any((data / part).is_dir() for part in ("traces", "profiles", "datasets")):
        raise ConfigurationError(f"--data {data}: holds none of traces, profiles, datasets; name a folder with them")
    if run is not None:
        if not run.is_dir():
            raise ConfigurationError(f"--run {run}: no such folder; give the --out folder of lbbsp demo")
        segments(run)
    figure_of(1)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.md").write_text("")
    except OSError as error:
        raise ConfigurationError(f"--out {out}: cannot be written ({error.strerror}); name another folder") from error
    console = Console()
    started = time.perf_counter()
    results: dict[str, Any] = {}
    parts: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stdout.isatty()) as progress:
        bar = progress.add_task("starting", total=len(names))
        context = Context(
            data=data, run=run, seed=seed, short=short, say=lambda text: progress.update(bar, description=text)
        )
        for name in names:
            begun = time.perf_counter()
            section = SECTIONS[name](context)
            write(section, out)
            parts.append(markdown(section))
            results[name] = {
                "title": section.title,
                "rows": [dict(zip(section.columns, row, strict=True)) for row in section.rows],
                "notes": section.notes,
                "seconds": time.perf_counter() - begun,
                **section.figures,
            }
            console.print(
                f"{name}: {section.title} ({results[name]['seconds']:.0f} s)", highlight=False, soft_wrap=True
            )
            progress.advance(bar)
    spent_s = time.perf_counter() - started
    head = f"# The paper's comparisons, repeated\n\nSeed {seed}{', short' if short else ''}; {spent_s:.0f} s.\n"
    (out / "report.md").write_text("\n".join([head, *parts]), encoding="utf-8")
    figures = {"seed": seed, "short": short, "seconds": spent_s, "sections": results}
    write_json(out / "reproduce.json", "reproduce", figures)
    write_json(json, "reproduce", figures)
    console.print(f"{out / 'report.md'} ({spent_s:.0f} s in all)", highlight=False, soft_wrap=True)
