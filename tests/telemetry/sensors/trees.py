"""Small copies of what Linux shows in /proc and /sys."""

from __future__ import annotations

from pathlib import Path


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def stat(*busy_ticks: int) -> str:
    """/proc/stat of as many cores, with their busy ticks (as user time)."""
    lines = [f"cpu  {sum(busy_ticks)} 0 0 0 0 0 0 0 0 0"]
    lines += [f"cpu{core} {ticks} 0 0 99 5 0 0 0 0 0" for core, ticks in enumerate(busy_ticks)]
    return "\n".join([*lines, "intr 1 2 3", "ctxt 7"]) + "\n"


def version_2(root: Path, *, path: str = "/job/worker", shown_from: str = "/") -> Path:
    """A version 2 hierarchy mounted below ``root``; the mount's directory."""
    mount = root / "sys" / "fs" / "cgroup"
    write(
        root,
        {
            "proc/self/cgroup": f"0::{path}\n",
            "proc/self/mountinfo": f"35 25 0:30 {shown_from} {mount} rw,nosuid - cgroup2 cgroup2 rw\n",
        },
    )
    return mount


def version_1(root: Path, *, path: str = "/job") -> Path:
    """A version 1 hierarchy with cpu and memory mounted below ``root``; the mounts' parent directory."""
    mounts = root / "sys" / "fs" / "cgroup"
    write(
        root,
        {
            "proc/self/cgroup": f"5:memory:{path}\n3:cpu,cpuacct:{path}\n0::/\n",
            "proc/self/mountinfo": (
                f"33 32 0:31 / {mounts}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                f"34 32 0:32 / {mounts}/memory rw - cgroup cgroup rw,memory\n"
            ),
        },
    )
    return mounts
