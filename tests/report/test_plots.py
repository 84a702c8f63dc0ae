from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lbbsp.errors import ConfigurationError, MissingDependencyError
from lbbsp.report import Mark, Segment, Series, draw, save_png

PNG = b"\x89PNG\r\n\x1a\n"


def series(iterations: int, workers: int, *, seed: int = 0) -> Series:
    shape, random = (iterations, workers), np.random.default_rng(seed)
    return Series(
        iterations=np.arange(iterations),
        totals=np.full(iterations, 64 * workers),
        sizes=np.full(shape, 64.0),
        compute_s=random.uniform(0.5, 1.0, shape),
        wait_s=random.uniform(0.0, 0.5, shape),
        step_s=np.ones(shape),
    )


def segment(iterations: int = 10, workers: int = 3, *, title: str = "Plain", seed: int = 0) -> Segment:
    marks = (Mark(iterations // 2, "shares change"),)
    return Segment(title=title, series=series(iterations, workers, seed=seed), marks=marks)


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    figure = draw([segment(), segment(title="Balanced", seed=1)], title="A comparison", cpu_shares=[0.8, 0.5, 0.3])
    assert len(figure.axes) == 6
    left, right = figure.axes[:2]
    assert left.get_ylim() == right.get_ylim()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["worker 0 · CPU share 0.8", "worker 1 · CPU share 0.5", "worker 2 · CPU share 0.3"]
    assert (left.get_title(loc="left"), right.get_title(loc="left")) == ("Plain", "Balanced")
    assert [axes.get_ylabel().replace("\n", " ") for axes in figure.axes[::2]] == [
        "Batch size (samples)",
        "Compute (seconds)",
        "Idle: wait for others (seconds)",
    ]
    texts = [text.get_text() for text in left.texts]
    assert "shares change" in texts
    assert "all 3 workers: 64" in texts
    path = save_png(figure, tmp_path / "new" / "picture.png", width_px=900)
    data = path.read_bytes()
    assert data.startswith(PNG)
    assert int.from_bytes(data[16:20], "big") == 900


def test_nothing_is_cut_off_at_the_edges(tmp_path: Path) -> None:
    figure = draw([segment(workers=4), segment(workers=4)], title="t", cpu_shares=[0.85, 0.55, 0.35, 0.25])
    save_png(figure, tmp_path / "picture.png")
    width, height = figure.canvas.get_width_height()
    box = figure.get_tightbbox().get_points() * figure.dpi
    assert box.min() >= 0
    assert (box[1] <= [width, height]).all()


def test_the_lines_are_the_data() -> None:
    one = segment()
    lines = draw([one]).axes[1].lines
    for worker in range(3):
        assert np.array_equal(np.asarray(lines[worker].get_ydata()), one.series.compute_s[:, worker])


@pytest.mark.parametrize(("iterations", "workers"), [(0, 2), (1, 1), (3, 9), (801, 20)])
def test_small_and_large_runs(tmp_path: Path, iterations: int, workers: int) -> None:
    figure = draw([segment(iterations, workers)])
    assert save_png(figure, tmp_path / "picture.png", width_px=450).read_bytes().startswith(PNG)
    assert len(figure.axes[0].lines[0].get_xdata()) <= 400  # type: ignore[arg-type]
    assert len(figure.legends[0].get_texts()) <= 16


def test_gaps_and_runs_without_any_measurement(tmp_path: Path) -> None:
    one = series(900, 2)
    one.compute_s[:] = np.nan
    one.wait_s[5:700, 1] = np.nan
    one.sizes[3, 0] = np.nan
    figure = draw([Segment(title="Cut", series=one), segment(workers=1)])
    save_png(figure, tmp_path / "picture.png", width_px=450)


def test_bad_use_is_named() -> None:
    with pytest.raises(ConfigurationError, match="3 segments: one or two"):
        draw([segment()] * 3)
    with pytest.raises(ConfigurationError, match="2 CPU shares for 3 workers"):
        draw([segment()], cpu_shares=[1.0, 0.5])


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=r'pip install "lbbsp\[report\]"'):
        draw([segment()])


def test_importing_imports_no_matplotlib_and_drawing_no_pyplot() -> None:
    code = """
import sys
import lbbsp.report as report
import numpy as np
assert "matplotlib" not in sys.modules
one = np.ones((2, 2))
series = report.Series(
    iterations=np.arange(2), totals=np.arange(2), sizes=one, compute_s=one, wait_s=one, step_s=one
)
report.draw([report.Segment(title="t", series=series)])
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
