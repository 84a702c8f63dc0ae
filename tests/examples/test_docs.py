"""The documentation cannot rot: its Python runs, its excerpts and its links are true.

Each ``python`` block of a page says by the comment on the line before it what it is:

- ``<!-- run -->``: a page's blocks run in order, in one namespace, on four ranks of a gloo process group, in
  an empty folder.  A block after it that is marked ``<!-- prints -->`` is what rank 0 printed;
- ``<!-- from PATH -->``: it stands in that file, but for its indentation;
- ``<!-- sketch -->``: it is Python, but names things that only a reader has.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.rank_pool import RankPool

ROOT = Path(__file__).resolve().parents[2]
OWN = ["telemetry.md"]  # has tests of its own
PAGES = sorted(p for p in (ROOT / "docs").glob("*.md") if p.name not in OWN)
PAGES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]

_FENCE = re.compile(r"(?:^<!-- (?P<mark>[^\n]+?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: its mark, its language, its text and the line that the text begins on."""

    mark: str
    kind: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["mark"] or "", m["kind"], m["text"], text.count("\n", 0, m.start("text")) + 1)
        for m in _FENCE.finditer(text)
    ]


def run_blocks(rank: int, workers: int, page: str, blocks: list[tuple[int, str]], folder: str) -> list[str]:
    """On a rank: run the blocks in one namespace; what each printed."""
    from lbbsp.torch import LoadBalancer

    before = os.getcwd()
    os.chdir(folder)
    namespace: dict[str, object] = {"__name__": page}
    printed = []
    try:
        for line, text in blocks:
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile("\n" * (line - 1) + text, page, "exec"), namespace)
            printed.append(output.getvalue())
    finally:
        os.chdir(before)
        for value in namespace.values():
            if isinstance(value, LoadBalancer):
                value.close()
    return printed


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.mark == "run" for b in blocks_of(p))], ids=lambda page: page.stem
)
def test_blocks_run(page: Path, ranks: RankPool, tmp_path: Path) -> None:
    blocks = blocks_of(page)
    to_run = [(block.line, block.text) for block in blocks if block.mark == "run"]
    printed = ranks.run(run_blocks, str(page.relative_to(ROOT)), to_run, str(tmp_path))[0]
    position = -1
    for block in blocks:
        position += block.mark == "run"
        if block.mark == "prints":
            assert printed[position] == block.text, f"{page.name}:{block.line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_python_block_is_checked(page: Path) -> None:
    for block in blocks_of(page):
        where = f"{page.name}:{block.line}"
        if block.kind == "python":
            assert block.mark in {"run", "sketch"} or block.mark.startswith("from "), f"{where}: not marked"
            compile(textwrap.dedent(block.text), where, "exec")
        if block.mark.startswith("from "):
            quoted = block.text.splitlines()
            source = (ROOT / block.mark.removeprefix("from ")).read_text(encoding="utf-8").splitlines()
            windows = (source[i : i + len(quoted)] for i in range(len(source)))
            assert any(_dedented(window) == _dedented(quoted) for window in windows), f"{where}: not in {block.mark}"


def _dedented(lines: list[str]) -> list[str]:
    return textwrap.dedent("\n".join(lines)).splitlines()


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / "docs" / name for name in OWN)], ids=lambda page: page.stem)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = _FENCE.sub("", text)
    for link in _LINK.findall(prose):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target) if target else page
        assert file.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in _anchors(file), f"{page.name}: {link}"
    for path in _PATH.findall(prose):
        assert (ROOT / path).exists(), f"{page.name}: {path}"


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
