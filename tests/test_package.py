"""The public surface, and that importing it brings no framework."""

from __future__ import annotations

import subprocess
import sys

import lbbsp
import lbbsp.errors
import lbbsp.torch


def test_exports_are_sorted_and_real() -> None:
    for module in (lbbsp, lbbsp.errors, lbbsp.torch):
        assert list(module.__all__) == sorted(module.__all__)
        for name in module.__all__:
            assert getattr(module, name).__doc__


def test_every_error_is_in_the_tree() -> None:
    for name in lbbsp.errors.__all__:
        assert issubclass(getattr(lbbsp.errors, name), lbbsp.LbbspError)
        assert name in (lbbsp.errors.__doc__ or "")


def test_importing_lbbsp_brings_no_framework() -> None:
    code = (
        "import sys, lbbsp, lbbsp.engine, lbbsp.runtime, lbbsp.telemetry, lbbsp.report, lbbsp.interfere\n"
        "heavy = {'torch', 'tensorflow', 'jax', 'matplotlib', 'rich', 'cyclopts', 'sklearn', 'scipy', 'grpc'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
