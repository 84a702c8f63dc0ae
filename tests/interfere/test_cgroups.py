"""Both cgroup versions on a fake tree that behaves as the kernel's documentation says."""

import errno
import os
from pathlib import Path

import pytest

from lbbsp.errors import ConfigurationError
from lbbsp.interfere import cgroups
from lbbsp.interfere.cgroups import Group, Hierarchy, find_hierarchy
from lbbsp.interfere.quota import Quotas

V2_FILES = ("cgroup.controllers", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads")


class FakeV2:
    """A cgroup version 2 file system: files come and go with groups, processes are in one group at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mkdir(root)
        (root / "cgroup.type").unlink()

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)
        for name in V2_FILES:
            (path / name).write_text("")
        parent = path.parent
        beside_processes = path != self.root and parent != self.root and self.members(parent)
        threaded = beside_processes and "cpu" in self.control(parent)
        (path / "cgroup.type").write_text("domain invalid\n" if threaded else "domain\n")
        if path == self.root or "cpu" in self.control(parent):
            (path / "cgroup.controllers").write_text("cpu\n")
            if path != self.root:
                (path / "cpu.max").write_text("max 100000\n")
                (path / "cpu.weight").write_text("100\n")

    def rmdir(self, path: Path) -> None:
        if self.members(path) or cgroups._groups_in(path):
            raise OSError(errno.EBUSY, "Device or resource busy")
        for file in path.iterdir():
            file.unlink()
        os.rmdir(path)

    def write(self, file: Path, text: str) -> None:
        if not file.exists():
            raise OSError(errno.EACCES, "Permission denied")
        group, kind = file.parent, (file.parent / "cgroup.type")
        if file.name in ("cgroup.procs", "cgroup.threads"):
            if kind.exists() and kind.read_text() == "domain invalid\n":
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            for other in (self.root, *self.root.rglob("*/")):
                for name in ("cgroup.procs", "cgroup.threads"):
                    left = [pid for pid in (other / name).read_text().split() if pid != text]
                    (other / name).write_text("\n".join(left))
            for name in ("cgroup.procs", "cgroup.threads"):
                (group / name).write_text(f"{(group / name).read_text()}\n{text}")
        elif file.name == "cgroup.subtree_control":
            controls = self.control(group) | {text[1:]}
            file.write_text(" ".join(controls - ({text[1:]} if text[0] == "-" else set())))
        elif file.name == "cpu.max":
            quota_us, period_us = map(int, text.split())
            assert quota_us >= 1_000
            assert 1_000 <= period_us <= 1_000_000
            file.write_text(text)
        else:
            file.write_text(text)

    def members(self, path: Path) -> list[str]:
        return (path / "cgroup.procs").read_text().split()

    def control(self, path: Path) -> set[str]:
        return set((path / "cgroup.subtree_control").read_text().split())


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeV2:
    fake = FakeV2(tmp_path / "cg 2")
    for name in ("mkdir", "rmdir", "write"):
        monkeypatch.setattr(cgroups, f"_{name}", getattr(fake, name))
    (fake.root / "cgroup.subtree_control").write_text("cpu")
    fake.mkdir(fake.root / "scope")
    (fake.root / "scope" / "cgroup.procs").write_text(str(os.getpid()))
    return fake


def test_v2_beside_processes_makes_threaded_groups_and_undoes_it(fake: FakeV2) -> None:
    scope = fake.root / "scope"
    with Quotas([0.5, 0.01], hierarchy=Hierarchy(scope, 2)) as quotas:
        assert fake.control(scope) == {"cpu"}
        first, second = sorted(cgroups._groups_in(scope))
        assert (first / "cgroup.type").read_text() == "threaded"
        assert (first / "cpu.max").read_text() == "10000 20000"
        assert (second / "cpu.max").read_text() == "1000 100000"
        assert int((first / "cpu.weight").read_text()) == 50 * int((second / "cpu.weight").read_text())
        quotas.set_shares([0.25, 0.5])
        assert (first / "cpu.max").read_text() == "5000 20000"
        assert "cgroup v2" in quotas.describe()
        first_group = Group(first, 2)
        first_group.enter(os.getpid())
        assert fake.members(scope) == []
    assert cgroups._groups_in(scope) == []
    assert str(os.getpid()) in fake.members(scope)
    assert fake.control(scope) == set()


def test_v2_root_makes_domain_groups_and_leaves_its_control(fake: FakeV2) -> None:
    with Quotas([0.5], hierarchy=Hierarchy(fake.root, 2)):
        (group,) = fake.root.glob("lbbsp-*")
        assert (group / "cgroup.type").read_text() == "domain\n"
    assert fake.control(fake.root) == {"cpu"}


def test_v2_keeps_the_control_that_others_need(fake: FakeV2) -> None:
    hierarchy = Hierarchy(fake.root / "scope", 2)
    with Quotas([0.5], hierarchy=hierarchy):
        fake.mkdir(fake.root / "scope" / "other")
    assert fake.control(fake.root / "scope") == {"cpu"}


def test_sweep_frees_what_dead_launchers_left(fake: FakeV2) -> None:
    hierarchy = Hierarchy(fake.root / "scope", 2)
    dead, foreign = hierarchy.make("lbbsp-1-123456789-0-w0"), hierarchy.make("other-1-123456789")
    with Quotas([0.5], hierarchy=hierarchy):
        assert not dead.path.exists()
        assert foreign.path.exists()
        dead = hierarchy.make("lbbsp-1-123456789-0-w0")
        dead.enter(12345)
        hierarchy.sweep()
        assert len(cgroups._groups_in(hierarchy.directory)) == 2
        assert "12345" in fake.members(hierarchy.directory)


def test_refusal_is_an_error_that_names_the_remedy(fake: FakeV2, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: Path, text: str) -> None:
        if file.name == "cpu.max":
            raise OSError(errno.EACCES, "Permission denied")
        fake.write(file, text)

    monkeypatch.setattr(cgroups, "_write", refuse)
    with pytest.raises(ConfigurationError, match=r"Permission denied.*Delegate=yes"):
        Quotas([0.5], hierarchy=Hierarchy(fake.root / "scope", 2))
    assert cgroups._groups_in(fake.root / "scope") == []
    assert fake.control(fake.root / "scope") == set()


@pytest.mark.parametrize("period_us", [0, 1_000, 19_999, 1_000_001])
def test_period_has_bounds(period_us: int) -> None:
    with pytest.raises(ConfigurationError, match="20000 to 1000000"):
        Quotas([0.5], period_us=period_us)


def _proc(directory: Path, *, mountinfo: str, cgroup: str) -> Path:
    directory.mkdir()
    (directory / "mountinfo").write_text(mountinfo)
    (directory / "cgroup").write_text(cgroup)
    return directory


def test_v2_is_found_at_the_group_of_the_process(fake: FakeV2, tmp_path: Path) -> None:
    mount = str(fake.root).replace(" ", r"\040")
    proc = _proc(
        tmp_path / "proc",
        mountinfo=f"2 1 8:1 / / rw - ext4 /dev/vda rw\n31 2 0:28 / {mount} rw shared:4 - cgroup2 c rw\n",
        cgroup="0::/scope\n",
    )
    assert find_hierarchy(proc) == Hierarchy(fake.root / "scope", 2)


def test_v2_without_the_controller_is_an_error(fake: FakeV2, tmp_path: Path) -> None:
    (fake.root / "scope" / "cgroup.controllers").write_text("memory pids")
    mount = str(fake.root).replace(" ", r"\040")
    proc = _proc(tmp_path / "proc", mountinfo=f"31 22 0:28 / {mount} rw - cgroup2 c rw", cgroup="0::/scope")
    with pytest.raises(ConfigurationError, match="have the controller delegated"):
        find_hierarchy(proc)


@pytest.mark.parametrize(
    ("root", "path", "found"),
    [("/", "/jobs/7", "jobs/7"), ("/docker/1", "/docker/1/sub", "sub"), ("/docker/1", "/docker/1", ".")],
)
def test_v1_is_found_before_v2_and_below_the_mounts_root(tmp_path: Path, root: str, path: str, found: str) -> None:
    proc = _proc(
        tmp_path / "proc",
        mountinfo=(
            "30 22 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
            f"31 22 0:28 {root} /mnt/cpuset rw - cgroup cgroup rw,cpuset\n"
            f"32 22 0:29 {root} /mnt/cpu rw - cgroup cgroup rw,cpuacct,cpu\n"
        ),
        cgroup=f"3:cpuset:/\n2:cpuacct,cpu:{path}\n0::/elsewhere\n",
    )
    assert find_hierarchy(proc) == Hierarchy(Path("/mnt/cpu") / found, 1)


def test_without_cgroups_the_other_way_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="way='competitors'"):
        find_hierarchy(tmp_path)
