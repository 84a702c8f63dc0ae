from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given

from lbbsp.telemetry import SCHEMA, Record
from lbbsp.telemetry.schema import decode, encode
from tests.telemetry.records import decision, event, iteration, records, run_record

DOC = Path(__file__).parents[2] / "docs" / "telemetry.md"
TYPES: dict[str, type[msgspec.Struct]] = {cls.__struct_config__.tag: cls for cls in get_args(Record)}


@given(records)
def test_any_record_comes_back_equal(record: Record) -> None:
    line = encode(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == record
    json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_null(value: float) -> None:
    record = decode(encode(iteration(compute_s=value)))
    assert record == iteration(compute_s=None)


def test_numbers_of_numpy_are_written_as_plain_ones() -> None:
    record = iteration(k=np.int64(3), compute_s=np.float32(0.5), wait_s=np.float64("nan"))  # type: ignore[arg-type]
    assert decode(encode(record)) == iteration(k=3, compute_s=0.5, wait_s=None)


def test_settings_that_json_does_not_know_are_written_as_text() -> None:
    settings = {"path": Path("a/b"), "kind": int, "shares": np.array([0.5, 1.0])}
    line = encode(msgspec.structs.replace(run_record(), settings=settings))
    assert json.loads(line)["settings"] == {"path": "a/b", "kind": "<class 'int'>", "shares": [0.5, 1.0]}


def test_fields_of_a_newer_version_are_ignored() -> None:
    raw = json.loads(encode(event())) | {"colour": "blue"}
    assert decode(json.dumps(raw).encode()) == event()


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        event().name = "other"  # type: ignore[misc]


def test_importing_needs_no_more_than_msgspec() -> None:
    code = "import sys, lbbsp.telemetry; print({'torch', 'matplotlib', 'psutil'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def section(kind: str) -> str:
    found = re.search(rf"^## `{kind}`.*?(?=^## |\Z)", DOC.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"docs/telemetry.md has no section on {kind!r}"
    return found[0]


@pytest.mark.parametrize("kind", TYPES)
def test_every_field_is_documented_once(kind: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section(kind), re.MULTILINE)
    assert rows == ["type", *TYPES[kind].__struct_fields__]


@pytest.mark.parametrize("kind", TYPES)
def test_the_documented_example_is_a_whole_record(kind: str) -> None:
    blocks = re.findall(r"```json\n(.*?)\n```", section(kind), re.DOTALL)
    assert len(blocks) == 1
    assert isinstance(decode(blocks[0].encode()), TYPES[kind])
    assert set(json.loads(blocks[0])) == {"type", *TYPES[kind].__struct_fields__}


def test_the_document_names_the_version() -> None:
    assert f"schema {SCHEMA}" in DOC.read_text().lower()


def test_all_factories_make_writable_records() -> None:
    for record in (run_record(), iteration(), event(), decision()):
        assert decode(encode(record)) == record
