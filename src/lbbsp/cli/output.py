"""What every command's ``--json`` file has: schema, command, version, machine, and the figures."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

import lbbsp
from lbbsp.errors import ConfigurationError

__all__ = ["machine", "usable_json", "write_json"]

SCHEMA = 1


def machine() -> dict[str, str]:
    """The machine that the figures were measured on."""
    return {
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("numpy", "torch")},
    }


def usable_json(path: Path | None) -> Path | None:
    """``path`` if a file can be written there; checked before any work.

    Raises:
        ConfigurationError: its folder does not exist or cannot be written to, or it is a folder.
    """
    if path is None:
        return None
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigurationError(f"--json {path}: no file can be written there; name one in a folder that exists")
    return path


def write_json(path: Path | None, command: str, figures: dict[str, Any]) -> None:
    """Write the figures of ``command``, with what they were measured by and on."""
    if path is None:
        return
    head = {"schema": SCHEMA, "command": command, "version": lbbsp.__version__, "machine": machine()}
    path.write_bytes(msgspec.json.format(msgspec.json.encode({**head, **figures}), indent=2) + b"\n")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
