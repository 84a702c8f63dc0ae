"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import lbbsp

PURE = [
    module.name
    for module in pkgutil.walk_packages(lbbsp.__path__, "lbbsp.")
    if module.name.startswith(
        ("lbbsp.core", "lbbsp.engine", "lbbsp.exchange", "lbbsp.runtime", "lbbsp.report", "lbbsp.sim")
    )
]


@pytest.mark.parametrize("name", PURE)
def test_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    globs = {**vars(module), "np": np}
    if name.startswith("lbbsp.core.allocate."):
        from lbbsp.core.types import Bounds

        globs["Bounds"] = Bounds
    assert doctest.testmod(module, globs=globs, raise_on_error=False).failed == 0
