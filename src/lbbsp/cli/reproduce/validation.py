"""The simulator against a real run: the demo's record, replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lbbsp.cli.reproduce.section import Context, Section
from lbbsp.core.policy import Equal, resolve_policy
from lbbsp.errors import ConfigurationError
from lbbsp.sim.replay import Recorded, agreement, recorded
from lbbsp.telemetry import read_run

__all__ = ["validation"]


def segments(folder: Path) -> list[tuple[str, Recorded]]:
    """The recorded segments of a demo, in order.

    Raises:
        ConfigurationError: the folder has no plain and balanced segment.
    """
    found = [
        (path.name, recorded(read_run(path)))
        for path in sorted(folder.iterdir())
        if path.is_dir() and any(path.glob("rank-*.jsonl"))
    ]
    if not {"plain", "balanced"} <= {replay.mode for _, replay in found}:
        raise ConfigurationError(
            f"--run {folder}: holds no plain and balanced segment; give the --out folder of lbbsp demo"
        )
    return found


def validation(context: Context) -> Section:
    """Measured against simulated iteration times."""
    rows: list[list[Any]] = []
    if context.run is not None:
        runs = segments(context.run)
        policies = {"plain": Equal(), "balanced": resolve_policy("auto")}
        for name, replay in runs:
            found = agreement(replay, replay, policies[replay.mode])
            rows.append([f"{name}, replayed", found.measured_s, found.simulated_s, found.error])
        for name, plain in runs:
            for other, balanced in runs:
                if plain.mode == "plain" and balanced.mode == "balanced":
                    found = agreement(plain, balanced, policies["balanced"])
                    rows.append([f"{other}, foretold from {name}", found.measured_s, found.simulated_s, found.error])
    worst = max((abs(row[3]) for row in rows), default=None)

    def draw(axes: list[Any]) -> None:
        if rows:
            top = 1.1 * max(max(row[1], row[2]) for row in rows)
            axes[0].plot([0, top], [0, top], color="black", linewidth=0.8)
            axes[0].plot([row[1] for row in rows], [row[2] for row in rows], "o")
        axes[0].set_xlabel("measured, s an iteration")
        axes[0].set_ylabel("simulated, s an iteration")

    return Section(
        name="validation",
        title="The simulator against a real run",
        columns=["run", "measured, s an iteration", "simulated, s an iteration", "error"],
        rows=rows,
        draw=draw,
        notes=[
            f"Medians over the iterations after the first five. The largest error is {worst:.1%}. Foretold: the "
            "balanced run simulated from the speeds of the plain run alone."
            if worst is not None
            else "No real run was given: --run FOLDER, the --out folder of lbbsp demo."
        ],
        figures={"largest_error": worst},
    )
