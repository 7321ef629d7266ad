"""Several mirrored roots: each to its own place, one barrier, one debugger over all of them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator

import pytest

from tests.support.mirror_rig import Rig, RigHost, needs_rsync, rig, tree, until
from tests.support.mirror_sshd import sshd
from tests.support.tkrig import PATIENCE_S, Project, line_of, project
from tunnelkit.errors import ExitCode, MirrorConflict, MirrorError
from tunnelkit.mirror.api import MirrorState, MirrorStatus
from tunnelkit.model import MirrorSpec
from tunnelkit.session.files.mirror_set import MirrorSet

__all__ = ["project", "rig", "sshd"]

pytestmark = needs_rsync


class Roots(RigHost):
    """A project and a library beside it."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self.rig = rig
        self.lib = rig.local.parent / "lib"
        self.lib.mkdir()
        self.far_lib = rig.home / "tk" / "lib"
        rig.write("main.py", "import lib\n")
        (self.lib / "lib.py").write_text("one\n")
        self.states: list[tuple[str, MirrorState]] = []
        self.mirrors = self.make()

    def mirror_changed(self, name: str, status: MirrorStatus) -> None:
        self.states.append((name, status.state))

    def make(self, far_lib: str = "~/tk/lib") -> MirrorSet:
        self.mirrors = MirrorSet(
            [
                MirrorSpec(str(self.rig.local), "~/tk/my project"),
                MirrorSpec(str(self.lib), far_lib, name="../lib"),
            ],
            self.rig.remote,
            self,
            state_dir=self.rig.state,
        )
        return self.mirrors

    def equal(self) -> bool:
        return self.rig.equal() and tree(self.lib) == tree(self.far_lib)


@pytest.fixture
async def roots(rig: Rig) -> AsyncIterator[Roots]:
    made = Roots(rig)
    yield made
    await made.mirrors.stop()


async def test_one_barrier_over_all(roots: Roots) -> None:
    await roots.mirrors.start()
    assert roots.equal()
    roots.rig.write("main.py", "import lib  # more\n")
    (roots.lib / "lib.py").write_text("two\n")
    (roots.lib / "new.py").write_text("new\n")
    report = await roots.mirrors.barrier(60.0)
    assert roots.equal() and report.sent >= 3
    assert {name for name, _ in roots.states} == {"", "../lib"}
    await roots.mirrors.stop()
    assert roots.mirrors.status().state is MirrorState.STOPPED


async def test_a_path_belongs_to_the_root_that_holds_it(roots: Roots) -> None:
    mirrors = roots.mirrors
    await mirrors.start()
    far = str(roots.rig.home / "tk")
    assert mirrors.remote_path(str(roots.lib)) == f"{far}/lib"
    assert mirrors.remote_path(str(roots.lib / "a" / "b")) == f"{far}/lib/a/b"
    assert mirrors.remote_path(str(roots.rig.local / "x")) == f"{far}/my project/x"
    assert mirrors.remote_path(str(roots.lib) + "rary") is None
    found = await mirrors.explain(str(roots.lib / "lib.py"))
    assert (found.path, found.state, found.remote) == ("lib.py", "in_sync", f"{far}/lib/lib.py")
    outside = await mirrors.explain("/etc/passwd")
    assert outside.reason == f"it lies outside of {roots.rig.local} and {roots.lib}"
    (roots.far_lib / "out.txt").write_text("result\n")
    (roots.rig.far / "out2.txt").write_text("result\n")
    report = await mirrors.pull([f"{far}/lib/out.txt", str(roots.rig.local / "out2.txt")])
    assert report.pulled == ("../lib/out.txt", "out2.txt") and report.bytes == 14
    assert (roots.lib / "out.txt").read_text() == "result\n"


async def test_a_conflict_names_its_root_and_is_settled_there(roots: Roots) -> None:
    await roots.mirrors.start()
    (roots.far_lib / "lib.py").write_text("edited there\n")
    (roots.lib / "lib.py").write_text("edited here\n")
    roots.rig.write("main.py", "import lib  # goes on\n")
    with pytest.raises(MirrorConflict, match=r"^\.\./lib: 1 mirrored file was changed"):
        await roots.mirrors.barrier(60.0)
    assert roots.rig.equal(), "the other root is in sync all the same"
    assert roots.mirrors.status().state is MirrorState.CONFLICT
    assert roots.mirrors.by_state()[0].spec.name == "../lib"
    assert roots.mirrors.conflicts() == ["../lib/lib.py"]
    report = await roots.mirrors.resolve([str(roots.lib / "lib.py")], theirs=False)
    assert report.replaced and roots.mirrors.conflicts() == []
    assert (roots.far_lib / "lib.py").read_text() == "edited here\n"


@pytest.mark.parametrize("target", ["tk/my project", "./tk", "again"])
async def test_remote_roots_that_meet_by_a_symlink_are_refused(roots: Roots, target: str) -> None:
    (roots.rig.home / "elsewhere").symlink_to(target)
    (roots.rig.home / "again").symlink_to(roots.rig.home / "tk" / "my project")
    mirrors = roots.make("~/elsewhere/my project/lib" if target == "./tk" else "~/elsewhere/lib")
    with pytest.raises(MirrorError, match="can't both be mirrored into"):
        await mirrors.start()
    assert not (roots.rig.home / "tk").exists(), "nothing was made there"


async def test_one_that_cant_start_stops_all(roots: Roots) -> None:
    (roots.rig.home / "file").write_text("")
    mirrors = roots.make("~/file/lib")
    with pytest.raises(MirrorError, match=r"^\.\./lib: "):
        await mirrors.start()
    assert all(mirror.status().state is not MirrorState.IN_SYNC for mirror in mirrors.all)
    roots.rig.write("later.py")
    await asyncio.sleep(0)
    assert not (roots.rig.far / "later.py").exists()


async def test_a_local_root_that_is_not_there_is_refused_before_all_else(roots: Roots) -> None:
    shutil.rmtree(roots.lib)
    with pytest.raises(MirrorError, match=r"^\.\./lib: the local directory"):
        await roots.mirrors.look()


LIBRARY = """\
def twice(number):
    return 2 * number
"""
PROGRAM = """\
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "LIB"))
import twice_lib

print("twice", twice_lib.twice(21), flush=True)
"""


async def test_a_session_with_two_roots(project: Project) -> None:
    lib = project.base / f"{project.dir.name}-lib"
    lib.mkdir()
    (lib / "twice_lib.py").write_text(LIBRARY)
    (lib / "away").symlink_to("/nowhere")
    project.write("2.py", PROGRAM.replace("LIB", lib.name))
    project.configure(f'[[mirror.also]]\nlocal = "../{lib.name}"\nremote = "~/tk/{lib.name}"\n')
    up = await project.tk("up")
    far = project.lab.home / "tk" / lib.name
    assert f"mirror: ../{lib.name}: 2 files" in up.err
    assert f"warning: ../{lib.name}: a symlink leads out" in up.err and "away -> /nowhere" in up.err
    status = await project.status()
    assert status["mirror"]["local"] == str(project.dir)
    assert [one["root"] for one in status["mirrors"]] == ["", f"../{lib.name}"]
    assert status["mirrors"][1]["remote"] == str(far)
    assert f"mirror   ../{lib.name}: in sync" in (await project.tk("status")).out

    explained = (await project.tk("sync", "--explain", str(lib / "twice_lib.py"), "--json")).json
    assert explained["state"] == "in_sync" and explained["remote"].endswith(f"{far}/twice_lib.py")

    # F5: a breakpoint in the library; the editor only knows of the project.
    loop = await project.loop("python", "-m", "debugpy", "--wait-for-client", "2.py")
    await project.ready()
    editor = await project.editor()
    source = str(lib / "twice_lib.py")
    await editor.attach(
        {source: [line_of(LIBRARY, "return")]},
        path_mappings=project.path_mappings,
        timeout_s=PATIENCE_S,
    )
    _, frame = await editor.stopped(PATIENCE_S)
    assert frame["source"]["path"] == source
    await loop.quit()

    # A command that is typed in the library runs in the library.
    (lib / "twice_lib.py").write_text(LIBRARY + "# more\n")
    await project.tk("sync")
    assert (far / "twice_lib.py").read_text().endswith("# more\n")
    home, project.dir = project.dir, lib
    try:
        assert (await project.tk("run", "pwd")).out.strip() == str(far)
    finally:
        project.dir = home

    await project.tk("down")
    (lib / "twice_lib.py").unlink()
    project.configure('[[mirror.also]]\nlocal = "."\nremote = "~/tk/x"\n')
    refused = await project.tk("up", code=ExitCode.CONFIG)
    assert "lies in" in refused.err or " is " in refused.err
    shutil.rmtree(far)
    project.configure()


async def test_links_that_are_ignored_stay_here(rig: Rig) -> None:
    rig.write("a.py")
    (rig.local / "link").symlink_to("a.py")
    mirrors = MirrorSet(
        [MirrorSpec(str(rig.local), "~/tk/my project", symlinks="ignore")],
        rig.remote,
        RigHost(),
        state_dir=rig.state,
    )
    try:
        await mirrors.start()
        (rig.local / "later").symlink_to("a.py")
        await mirrors.barrier(60.0)
        assert sorted(path.name for path in rig.far.iterdir()) == ["a.py"]
        found = await mirrors.explain(str(rig.local / "link"))
        assert not found.mirrored and "symlinks" in found.reason and found.remote is None
    finally:
        await mirrors.stop()


async def test_a_root_that_gets_stale_is_told_first(roots: Roots) -> None:
    mirrors = roots.mirrors
    await mirrors.start()
    shutil.rmtree(roots.lib)
    with pytest.raises(MirrorError, match=r"^\.\./lib: "):
        await mirrors.barrier(30.0)
    await until(lambda: mirrors.status().state is MirrorState.HALTED, "the halt of the library")
    assert mirrors.project.status().state is MirrorState.IN_SYNC
