"""What a person sees of the mirror: why a path is mirrored, how it stands, each batch, how far.

The first half uses a mirror over a real sshd, the second the real `tk` on a lab.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.mirror_rig import Rig, needs_rsync
from tests.support.tkrig import Project, project_on
from tunnelkit.errors import MirrorError
from tunnelkit.lab import LabInfo
from tunnelkit.mirror.api import PassRecord
from tunnelkit.mirror.explain import DIFFERS, IN_SYNC, PENDING, Explanation
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.passes.size_warnings import WARN_FILE_BYTES, SizeWatch
from tunnelkit.mirror.progress import Progress

pytestmark = needs_rsync


# -- a mirror over a real sshd ---------------------------------------------


async def explained(mirror: Mirror, rig: Rig, path: str) -> Explanation:
    return await mirror.explain(str(rig.local / path))


async def test_how_a_path_stands(rig: Rig) -> None:
    rig.write("main.py", "one\n")
    rig.write(".tkignore", "*.log\n")
    rig.write("a.log")
    (rig.local / "link").symlink_to("main.py")
    mirror = await rig.started()
    found = await explained(mirror, rig, "main.py")
    assert (found.mirrored, found.state, found.proven) == (True, IN_SYNC, rig.node is not None)
    assert (await explained(mirror, rig, "link")).state == IN_SYNC
    found = await explained(mirror, rig, "a.log")
    assert (found.mirrored, found.state) == (False, None)
    assert str(found.rule) == ".tkignore:1: *.log"
    assert (await explained(mirror, rig, "none.py")).state is None
    (rig.far / "link").unlink()
    found = await explained(mirror, rig, "link")
    assert (found.state, found.state_reason) == (DIFFERS, "it is gone on the cluster")


async def test_what_was_changed_on_the_cluster_differs(rig: Rig) -> None:
    rig.write("main.py", "one\n")
    mirror = await rig.started()
    rig.write("main.py", "there\n", far=True)
    found = await explained(mirror, rig, "main.py")
    assert (found.state, found.state_reason) == (DIFFERS, "it was changed on the cluster")


async def test_what_is_not_sent_yet_is_pending(rig: Rig) -> None:
    rig.write("main.py", "one\n")
    mirror = await rig.started()
    rig.sshd.stop()
    if rig.node is not None:
        rig.node.reachable = False
        rig.node.client.drop_link("cut by the test")
    rig.write("main.py", "two\n")
    rig.write("new.py")
    # Or there was an attempt already.
    found = await explained(mirror, rig, "main.py")
    assert found.state == PENDING
    assert found.state_reason in ("changed here since it was sent", "on its way")
    found = await explained(mirror, rig, "new.py")
    assert found.state == PENDING and found.state_reason in ("not sent yet", "on its way")
    (rig.local / "main.py").unlink()
    found = await explained(mirror, rig, "main.py")
    assert (found.state, found.exists) == (PENDING, False)
    if rig.node is not None:
        rig.node.reachable = True
        rig.node.client.retry()


async def test_without_a_link_the_last_known_is_told(rig: Rig) -> None:
    rig.write("main.py", "one\n")
    mirror = await rig.started()
    rig.sshd.stop()
    found = await explained(mirror, rig, "main.py")
    assert found.state == IN_SYNC
    assert "can't be asked" in (found.state_reason or "")


async def test_the_node_is_asked_where_there_is_one(rig: Rig) -> None:
    stale: set[str] = set()

    async def check(digests: Mapping[str, str]) -> list[str]:
        def wrong(path: str, text: str) -> bool:
            return hashlib.sha256((rig.far / path).read_bytes()).hexdigest() != text

        return [path for path, text in digests.items() if path in stale or wrong(path, text)]

    rig.write("main.py", "one\n")
    mirror = await rig.started(verify=lambda: check)
    assert (await explained(mirror, rig, "main.py")).proven
    stale.add("main.py")
    found = await explained(mirror, rig, "main.py")
    assert (found.state, found.state_reason) == (DIFFERS, "the compute node reads other content")


async def test_a_mirror_that_does_not_run_can_not_tell(rig: Rig) -> None:
    with pytest.raises(MirrorError, match="not running"):
        await rig.mirror().explain(str(rig.local / "main.py"))


async def test_each_batch_is_told(rig: Rig) -> None:
    told: list[PassRecord] = []
    rig.write("a.py", "12345\n")
    rig.write("b/c.py", "123\n")
    mirror = await rig.started(on_batch=told.append)
    (first,) = told
    assert (first.files, first.bytes, first.deleted) == (2, 10, 0)
    assert set(first.paths) == {"a.py", "b/c.py"}
    assert first.duration_s > 0
    await mirror.barrier(20)
    assert len(told) == 1  # nothing to do is no batch
    (rig.local / "a.py").unlink()
    await mirror.barrier(20)
    last = told[-1]
    assert (last.files, last.deleted, last.paths) == (0, 1, ("a.py",))


async def test_how_far_the_first_copy_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        (rig.local / f"{number}.bin").write_bytes(os.urandom(4 << 20))
    mirror = rig.mirror()
    assert mirror.progress() is None
    seen: list[dict[str, Any]] = []
    way = "add" if rig.node is not None else "feed"
    told = getattr(Progress, way)

    def noted(progress: Progress, *more: Any) -> None:
        told(progress, *more)
        assert mirror.progress() is progress
        seen.append(progress.to_json())

    monkeypatch.setattr(Progress, way, noted)
    await mirror.start()
    assert {(one["files_total"], one["bytes_total"]) for one in seen} == {(12, 12 * (4 << 20))}
    assert [one for one in seen if 0 < one["files"] < 12 and 0 < one["bytes"] < 12 * (4 << 20)]
    assert seen[-1]["files"] == 12
    assert mirror.progress() is None
    assert rig.equal()


async def test_a_warning_comes_before_the_sending(rig: Rig) -> None:
    said: list[tuple[str, bool]] = []
    rig.write("small.py")
    mirror = rig.mirror()
    mirror.sizes = SizeWatch(
        lambda text: said.append((text, (rig.far / "big.bin").exists())), file_bytes=1000
    )
    await mirror.start()
    (rig.local / "big.bin").write_bytes(bytes(2000))
    await mirror.barrier(20)
    assert (rig.far / "big.bin").exists()
    assert said == [
        ("big.bin is big (2.0 kB); to leave it out, write /big.bin into .tkignore", False)
    ]
    rig.write(".tkignore", "/big.bin\n")
    await mirror.barrier(20)
    assert mirror.sizes.current() == ()


# -- tk itself --------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(lab: LabInfo) -> AsyncIterator[Project]:
    """A project whose session is up on node1."""
    if lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    async with project_on(lab) as project:
        project.write(".tkignore", "*.ckpt\n")
        await project.up("node1", "--cpus", "1")
        yield project


@pytest.mark.asyncio(loop_scope="module")
async def test_explain_with_a_session(up: Project) -> None:
    await up.tk("sync")
    done = await up.tk("sync", "--explain", "2.py")
    assert done.out == (
        "2.py: mirrored, in sync, proven on the node: no rule leaves it out "
        f"-> {(await up.status())['login']}:{up.remote('2.py')}\n"
    )
    done = await up.tk("sync", "--explain", "a.ckpt")
    assert done.out == "a.ckpt: not mirrored: left out by .tkignore:1: *.ckpt\n"
    found = (await up.tk("sync", "--explain", str(up.dir / "2.py"), "--json")).json
    assert (found["path"], found["state"], found["rule"]) == ("2.py", "in_sync", None)


@pytest.mark.asyncio(loop_scope="module")
async def test_each_batch_is_a_line(up: Project) -> None:
    terminal = await up.terminal("sync", "--watch")
    machine = await up.terminal("sync", "--watch", "--json")
    await terminal.line(r"^\d\d:\d\d:\d\d  in sync; \d+ files")
    await machine.line(r'"event": "state"')
    # As an editor without temporaries saves: a busy machine may show these for a moment.
    with open(up.dir / "watched.py", "w") as file:
        file.write("x = 1\n")
    await terminal.line(r"^\d\d:\d\d:\d\d  1 file, 6 B sent in \d+ ms: watched\.py$")
    event = json.loads((await machine.line(r'.*"event": "batch".*"bytes": 6.*'))[0])
    assert (event["files"], event["bytes"], event["paths"]) == (1, 6, ["watched.py"])
    (up.dir / "watched.py").unlink()
    await terminal.line(r"1 deleted in \d+ ms: watched\.py$")
    terminal.interrupt()
    assert await terminal.ended() == 130
    assert "Traceback" not in terminal.text


@pytest.mark.asyncio(loop_scope="module")
async def test_a_big_file_is_told_of(up: Project) -> None:
    watch = await up.terminal("sync", "--watch")
    await watch.line(r"in sync")
    with open(up.dir / "big.bin", "wb") as stream:
        stream.truncate(WARN_FILE_BYTES + 1)
    text = "big.bin is big (100 MB); to leave it out, write /big.bin into .tkignore"
    report = await up.tk("sync")
    assert report.err == f"{text}\n"
    await watch.line("warning: big.bin is big")
    assert (await up.tk("sync")).err == ""
    assert f"  warning: {text}\n" in (await up.tk("status")).out
    assert f"warning: {text}" in up.session_log()
    (up.dir / "big.bin").unlink()
    await up.tk("sync")
    assert (await up.status())["mirror"]["warnings"] == []


@pytest.mark.asyncio(loop_scope="module")
async def test_the_line_of_status(up: Project) -> None:
    await up.tk("sync")
    lines = (await up.tk("status")).out.splitlines()
    (line,) = [line for line in lines if line.startswith("mirror")]
    mirror = (await up.status())["mirror"]
    assert line.startswith(f"mirror   in sync; {mirror['files']} files (")
    assert line.endswith(f" -> {mirror['remote']}")


@pytest.mark.asyncio(loop_scope="module")
async def test_the_watch_ends_with_the_session(up: Project) -> None:
    """The last of the module: it ends the session."""
    watch = await up.terminal("sync", "--watch")
    await watch.line(r"in sync")
    await up.tk("down")
    assert await watch.ended() == 4
    assert "the session ended" in watch.text
    done = await up.tk("sync", "--explain", "a.ckpt")
    assert done.out == "a.ckpt: not mirrored: left out by .tkignore:1: *.ckpt\n"
    assert Path(up.dir, ".tkignore").exists()
