"""Traces of shares: their format, every way to break it, and their replay."""

from __future__ import annotations

import gzip
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lbbsp.errors import ConfigurationError
from lbbsp.interfere import Replay, ShareTrace

GOOD = "t_s,0,1\n0,0.8,0.2\n0.1,0.5,0.5\n0.2,0.2,0.8\n"


class Held:
    """An interference that notes what it was set to, and refuses some."""

    shares = (1.0, 1.0)

    def __init__(self, refuses: Sequence[float] = ()) -> None:
        self.seen: list[tuple[float, ...]] = []
        self.refuses = refuses

    def set_shares(self, shares: Sequence[float]) -> None:
        if shares[0] in self.refuses:
            raise ConfigurationError("out of reach")
        self.seen.append(tuple(shares))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


@pytest.fixture
def trace(tmp_path: Path) -> ShareTrace:
    (tmp_path / "good.csv").write_text(GOOD)
    return ShareTrace.read(tmp_path / "good.csv")


def wait_for(held: Held, changes: int) -> None:
    end_s = time.monotonic() + 10
    while len(held.seen) < changes and time.monotonic() < end_s:
        time.sleep(0.005)


def test_shares_hold_until_the_next_row(trace: ShareTrace) -> None:
    assert [trace.at(t)[0] for t in (0.0, 0.09, 0.1, 0.2, 1e9)] == [0.8, 0.8, 0.5, 0.2, 0.2]
    assert trace.workers == 2


def test_a_replay_sets_every_row_in_order(trace: ShareTrace) -> None:
    held = Held()
    with Replay(held, trace, pace=10.0) as replay:
        wait_for(held, 3)
    assert tuple(held.seen) == trace.shares
    assert (replay.changes, replay.refused) == (3, 0)


def test_a_refused_change_is_counted_and_the_rest_goes_on(trace: ShareTrace) -> None:
    held = Held(refuses=[0.5])
    with Replay(held, trace, pace=10.0) as replay:
        wait_for(held, 2)
    assert [row[0] for row in held.seen] == [0.8, 0.2]
    assert replay.refused == 1


def test_closing_stops_it(trace: ShareTrace) -> None:
    held = Held()
    replay = Replay(held, trace, pace=1e-3)
    replay.close()
    replay.close()
    assert held.seen == [(0.8, 0.2)]


def test_a_replay_for_other_workers_is_refused(trace: ShareTrace) -> None:
    held = Held()
    held.shares = (1.0, 1.0, 1.0)  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="the trace has 2 workers, 3 are to be held"):
        Replay(held, trace)
    with pytest.raises(ConfigurationError, match="pace"):
        Replay(Held(), trace, pace=0.0)


def test_a_gzipped_trace(tmp_path: Path, trace: ShareTrace) -> None:
    path = tmp_path / "good.csv.gz"
    path.write_bytes(gzip.compress(GOOD.encode()))
    assert ShareTrace.read(path) == trace


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the header"),
        ("time,0\n0,0.5\n", "line 1: the header"),
        ("t_s\n0\n", "line 1: the header"),
        ("t_s,0\n", "no row"),
        ("t_s,0\n0\n", "line 2: 1 values for 2 columns"),
        ("t_s,0\n0,x\n", "line 2: could not convert"),
        ("t_s,0\n1,0.5\n", "line 2: t_s=1 must be 0 in the first row"),
        ("t_s,0\n0,0.5\n0,0.4\n", "line 3: t_s=0 must be more than 0"),
        ("t_s,0\n0,0.5\nnan,0.4\n", "line 3: t_s=nan"),
        ("t_s,0\n0,nan\n", "line 2: share of worker 0 is nan"),
        ("t_s,0\n0,-0.5\n", "line 2: share of worker 0 is -0.5"),
        ("t_s,0\n0,50\n", "line 2: share of worker 0 is 50.0: it must be above 0 and at most 1 cores"),
    ],
)
def test_broken_traces(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.csv"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        ShareTrace.read(path)


@pytest.mark.parametrize("content", [gzip.compress(GOOD.encode() * 50)[:40], b"no gzip"])
def test_broken_gzip(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.csv.gz"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="cannot be read as a trace"):
        ShareTrace.read(path)
    with pytest.raises(ConfigurationError, match="cannot be read as a trace"):
        ShareTrace.read(tmp_path / "none.csv")
