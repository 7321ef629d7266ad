"""`tk pull` by hand, in a real session, from a login host that lies: one line, nothing written."""

from __future__ import annotations

import stat
import tarfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.hostile.login_host import LoginHost, file, link
from tests.support.login_rig import LoginHost as Entrance
from tests.support.login_rig import login_host as entrance
from tests.support.login_rig import project_by
from tests.support.logins import allowed
from tests.support.mirror_rig import needs_rsync
from tests.support.terminal import Done
from tests.support.tkrig import Project
from tunnelkit.lab import LabInfo

pytestmark = needs_rsync

_KEYS = "VICTIM/authorized_keys"
_SPARSE = {"GNU.sparse.realsize": str(1 << 40)}
_MOST = "more than it had listed"
_UNASKED = "not asked for"
_NO_FILE = "neither a file nor a symlink"


@pytest.fixture
def door(slurm_lab: LabInfo, request: pytest.FixtureRequest) -> Iterator[Entrance]:
    """A login host whose sessions find the test's programs first."""
    with entrance(slurm_lab, started=False, logins=allowed(request, "login")) as made:
        made.programs = made.home / "programs"
        made.programs.mkdir()
        made.start()
        yield made


@pytest.fixture
def liar(door: Entrance) -> LoginHost:
    """What those programs are. It is honest until a test says what it lists and sends."""
    assert door.programs is not None
    return LoginHost(door.programs, door.home / "hostile")


@pytest.fixture
async def project(door: Entrance) -> AsyncIterator[Project]:
    async with project_by(door) as made:
        made.write(".gitignore", "results/\n")
        victim = made.base / "VICTIM"
        victim.mkdir()
        (victim / "authorized_keys").write_text("mine\n")
        yield made


@dataclass(frozen=True)
class Attack:
    """What the host lists and sends, and what the person reads of it."""

    why: str
    listed: list[tuple[str, int]]
    sent: list[Any]


def everything(project: Project) -> dict[str, bytes | str | None]:
    """All files that the attacks could reach, but for the session's own state."""
    found: dict[str, bytes | str | None] = {}
    tops = (one for one in project.base.iterdir() if one.name not in ("s", "c"))
    for path in (below for top in tops for below in (top, *top.rglob("*"))):
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        elif not path.is_socket():
            found[str(path)] = path.read_bytes() if path.is_file() else None
    return found


async def up(project: Project) -> None:
    await project.up("node1")
    project.remote("results").mkdir()
    for name in "xy":
        project.remote(f"results/{name}").write_text("12345")


def said(done: Done) -> str:
    """What the command says at its end, one line; before it there may be how far it was."""
    (line,) = (one for one in done.err.splitlines() if not one.startswith("pulling: "))
    return line


async def refused(project: Project, why: str) -> None:
    before = everything(project)
    done = await project.tk("pull", "results", code=9)
    assert why in said(done)
    assert "login" in said(done) and "\x1b" not in done.err
    assert done.out == ""
    assert everything(project) == before


async def works(project: Project) -> None:
    """The session has not suffered."""
    assert (await project.status())["state"] == "ready"
    project.write("2.py", "print('edited')\n")
    await project.tk("sync", "--wait")


def names_that_lead_out(project: Project) -> list[str]:
    return [
        f"./results/../../{_KEYS}",
        f"./results/./../../{_KEYS}",
        f"../{_KEYS}",
        f"{project.base}/{_KEYS}",
        f"./{project.base}/{_KEYS}",
        "./.git/hooks/post-checkout",
    ]


def bare(size: int, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    """An entry whose header alone is what counts."""
    info = tarfile.TarInfo("./results/x")
    info.size = size
    for name, value in more.items():
        setattr(info, name, value)
    return info, b"x" * size


async def test_by_tar(project: Project, liar: LoginHost) -> None:
    liar.program("rsync", "exit 127")
    await up(project)
    victim = str(project.base / _KEYS)
    for name in names_that_lead_out(project):
        liar.lists([("./results/x", 5), (name, 5)])
        liar.sends([file("./results/x"), file(name)])
        await refused(project, _UNASKED)
    for attack in (
        Attack(_NO_FILE, [], [link("./results/x", "", tarfile.CHRTYPE)]),
        Attack(_NO_FILE, [], [link("./results/x", "", tarfile.BLKTYPE)]),
        Attack(_NO_FILE, [], [link("./results/x", "", tarfile.FIFOTYPE)]),
        Attack(_NO_FILE, [], [link("./results/x", victim, tarfile.LNKTYPE)]),
        Attack("sparse", [], [bare(512, type=tarfile.GNUTYPE_SPARSE)]),
        Attack("sparse", [], [bare(5, pax_headers=_SPARSE)]),
        Attack("did not come", [], [file(f"../{_KEYS}"), file(victim)]),
        Attack("did not come", [("./results/y", 5)], [file("./results/x/y"), file(".env")]),
        Attack(_MOST, [], [file("./results/x", b"x" * (66 << 20))]),
    ):
        liar.lists(attack.listed or [("./results/x", 5)])
        liar.sends(attack.sent)
        await refused(project, attack.why)
    liar.sends_bytes(b"", "exec cat /dev/zero")
    await refused(project, _MOST)
    await works(project)


async def test_links_through_links_by_tar(project: Project, liar: LoginHost) -> None:
    liar.program("rsync", "exit 127")
    await up(project)
    trick = [
        link("results/d/up", ".."),
        link("results/d/upup", "up/../.."),
        link("results/d/out", "upup/.."),
        file(f"results/d/out/{_KEYS}"),
    ]
    liar.lists([("./" + info.name, 5) for info, _ in trick])
    liar.sends(trick)
    done = await project.tk("pull", "results", code=9)
    assert "not all files came" in said(done)
    assert "'results/d/out': Is a directory" in said(done)
    assert (project.base / _KEYS).read_text() == "mine\n"
    root = project.dir.resolve()
    assert all(path.resolve().is_relative_to(root) for path in project.dir.rglob("*"))
    await works(project)


def entry(name: str, size: int = 5, **more: Any) -> dict[str, Any]:
    return {"name": name, "size": size, **more}


def odd(kind: int, target: str = "") -> dict[str, Any]:
    return entry("results/x", 0, mode=kind | 0o644, target=target)


_FOLDER = entry("results", 0, mode=stat.S_IFDIR | 0o755)


async def test_by_rsync(project: Project, liar: LoginHost) -> None:
    victim = str(project.base / _KEYS)
    await up(project)
    for name in names_that_lead_out(project):
        liar.lists([("./results/x", 5), (name, 5)])
        liar.sends_by_rsync([_FOLDER, entry("results/x"), entry(name)])
        await refused(project, _UNASKED)
    liar.lists([("./results/x", 5)])
    for why, *sent in (
        (_UNASKED, _FOLDER, entry("results/y")),
        (_UNASKED, entry("2.py")),
        ("login", _FOLDER, entry(f"results/../../{_KEYS}")),
        ("login", entry(victim)),
        ("login", entry("results", 5, mode=stat.S_IFLNK | 0o777, target=str(project.base)),
         entry("results/x")),
        (_MOST, _FOLDER, entry("results/x", 5, fill=10 << 30)),
        (_MOST, _FOLDER, entry("results/x", 10 << 30)),
    ):  # fmt: skip
        liar.sends_by_rsync(sent)
        await refused(project, str(why))
    before = everything(project)
    for sent_kind in (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFLNK):
        liar.sends_by_rsync([_FOLDER, odd(sent_kind, victim)])
        done = await project.tk("pull", "results")
        assert "pulled 0 files" in done.out
        assert "not brought" in said(done) and "results/x" in said(done)
        assert everything(project) == before
    await works(project)


async def test_a_list_without_an_end(project: Project, liar: LoginHost) -> None:
    await up(project)
    liar.program("find", r"yes '1 ./results/x' | tr '\n' '\0'")
    await refused(project, "it lists more than")
    liar.lists([("./\x1b]0;evil\x07", 5)])
    await refused(project, _UNASKED)
    await works(project)
