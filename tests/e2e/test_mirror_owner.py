"""One owner per remote directory: the second is refused, the first comes back at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.mirror_rig import Rig, RigHost, needs_rsync, tree, until
from tests.support.tkrig import Project
from tunnelkit.errors import MirrorError
from tunnelkit.mirror.api import MirrorHalted, MirrorState
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.passes.agent_pass import AgentPass
from tunnelkit.mirror.passes.bulk_pass import BulkPass
from tunnelkit.mirror.remote.owner import this_owner
from tunnelkit.mirror.remote.root import claim, prepare, unmake
from tunnelkit.model import MirrorSpec

pytestmark = needs_rsync


def other_mirror(rig: Rig, *, remote: str = "~/tk/my project", take_over: bool = False) -> Mirror:
    """Of another laptop, onto the same place."""
    local = rig.local.parent / "other laptop"
    local.mkdir(exist_ok=True)
    (local / "other.py").write_text("other\n")
    mirror = Mirror(
        MirrorSpec(str(local), remote),
        rig.remote,
        RigHost(),
        state_dir=rig.state.with_name("other state"),
        take_over=take_over,
    )
    rig.mirrors.append(mirror)
    return mirror


def owner_file(rig: Rig) -> Path:
    return rig.far.parent / f".{rig.far.name}.tk-owner"


async def test_the_second_is_refused_naming_the_first(rig: Rig) -> None:
    rig.write("main.py")
    first = await rig.started()
    (rig.home / "way round").symlink_to("tk")
    for remote in ("~/tk/my project", "~/way round/my project"):
        with pytest.raises(MirrorError, match="already has a mirror") as caught:
            await other_mirror(rig, remote=remote).start()
        assert str(rig.local) in (caught.value.cause or "")
        assert os.uname().nodename in (caught.value.cause or "")
        assert "--take-over" in (caught.value.hint or "")
    assert {os.fsdecode(path) for path in tree(rig.far)} == {"main.py"}
    rig.write("main.py", "2\n")
    await first.barrier(20)
    assert rig.equal()


async def test_an_orderly_end_gives_it_back(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    assert owner_file(rig).stat().st_mode & 0o777 == 0o600
    await mirror.stop()
    assert not owner_file(rig).exists()
    assert list(rig.far.parent.iterdir()) == [rig.far]
    await other_mirror(rig).start()
    assert (rig.far / "other.py").exists()


async def test_two_at_once_one_wins(rig: Rig) -> None:
    rig.write("main.py")
    both = [rig.mirror(), other_mirror(rig)]
    results = await asyncio.gather(*(one.start() for one in both), return_exceptions=True)
    refused = [result for result in results if isinstance(result, MirrorError)]
    assert len(refused) == 1 and "already has a mirror" in refused[0].message, results
    assert sorted(tree(rig.far)) in ([b"main.py"], [b"other.py"])


async def test_a_start_that_failed_leaves_another_its_directory(rsync_rig: Rig) -> None:
    """Both found nothing; one of them made the directory, and then can't go on."""
    rig = rsync_rig
    target = await prepare(rig.remote, "~/tk/my project")
    assert target.fresh and not (await prepare(rig.remote, "~/tk/my project")).fresh
    # Before the other's claim...
    await unmake(rig.remote, target.real, timeout_s=10.0)
    assert not rig.far.exists()
    rig.state.mkdir()
    await claim(rig.remote, target.real, this_owner(rig.state, str(rig.local)))
    assert rig.far.is_dir() and rig.far.stat().st_mode & 0o777 == 0o700
    # ...or after it.
    await unmake(rig.remote, target.real, timeout_s=10.0)
    assert rig.far.is_dir()


async def test_take_over_stops_the_first(rig: Rig) -> None:
    rig.write("main.py")
    first = await rig.started()
    second = other_mirror(rig, take_over=True)
    await second.start()
    assert str(rig.local) in (second.taken_from or "")
    rig.write("main.py", "the first edits\n")
    with pytest.raises(MirrorHalted, match="another mirror has taken over") as caught:
        await first.barrier(20)
    assert "other laptop" in (caught.value.cause or "")
    assert first.status().state is MirrorState.HALTED
    assert (rig.far / "main.py").read_text() == "x\n"
    await first.stop()
    assert "other laptop" in owner_file(rig).read_text()
    again = rig.mirror()
    with pytest.raises(MirrorError, match="already has a mirror"):
        await again.start()


async def test_a_lost_owner_file_is_made_again(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    owner_file(rig).unlink()
    rig.write("main.py", "2\n")
    await mirror.barrier(20)
    await mirror.resync()
    assert owner_file(rig).exists()
    assert rig.equal()


KILLED = """\
import asyncio, sys
from pathlib import Path
from tests.support.mirror_rig import RigHost
from tests.support.mirror_sshd import Sshd, SshRemote
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.model import MirrorSpec

class Known(Sshd):
    def __init__(self, directory, port):
        self.directory, self.port = directory, port

async def main(directory, port, local, home, state):
    remote = SshRemote(Known(Path(directory), int(port)), Path(home))
    mirror = Mirror(MirrorSpec(local, "~/tk/my project"), remote, RigHost(), state_dir=Path(state))
    await mirror.start()
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_after_kill_9_the_same_directory_goes_on_at_once(rig: Rig) -> None:
    rig.write("main.py")
    words = (rig.sshd.directory, rig.sshd.port, rig.local, rig.home, rig.state)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KILLED,
        *map(str, words),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"started\n"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    assert owner_file(rig).exists()
    with pytest.raises(MirrorError, match="already has a mirror"):
        await other_mirror(rig).start()
    rig.write("main.py", "2\n")
    mirror = await rig.started()
    assert mirror.taken_from is None
    assert rig.equal()
    assert mirror.status().state is MirrorState.IN_SYNC


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_closed_parent_has_the_file_inside(rig: Rig) -> None:
    rig.write("main.py")
    rig.far.mkdir(parents=True)
    rig.far.parent.chmod(0o500)
    try:
        mirror = await rig.started()
        assert (rig.far / ".tk-owner").exists()
        with pytest.raises(MirrorError, match="already has a mirror"):
            await other_mirror(rig).start()
        await mirror.stop()
        assert rig.equal()
    finally:
        rig.far.parent.chmod(0o700)


@pytest.mark.parametrize("then", ["deleted", "changed", "linked"])
async def test_what_a_kill_9_left_without_an_answer_is_known_as_ours(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    sources = [rig.write(name, "1\n") for name in ("a.py", "-b", "c d")]
    links = [rig.local / f"link to {source.name}" for source in sources]
    for link in links:
        link.symlink_to("before")
    mirror = await rig.started()
    await mirror.barrier(20)

    def killed(*args: object) -> None:
        raise OSError("before it was written down")

    with monkeypatch.context() as patch:
        patch.setattr(AgentPass, "_record", killed)
        patch.setattr(BulkPass, "_confirm", killed)
        for number, (source, link) in enumerate(zip(sources, links, strict=True)):
            source.write_text("longer than before\n")
            if number:
                await until(lambda: mirror.status().state is MirrorState.STALE, "that it failed")
                source.write_text("and once more\n")
            wanted = source.read_bytes()
            link.unlink()
            link.symlink_to(f"number {number}\n")
            with contextlib.suppress(MirrorError):
                await mirror.barrier(20)
            far = rig.far / source.name
            await until(lambda far=far, wanted=wanted: far.read_bytes() == wanted, "its arrival")
            far = rig.far / link.name
            await until(lambda far=far, n=number: os.readlink(far) == f"number {n}\n", "the link")
        await mirror.stop()
    for source, link in zip(sources, links, strict=True):
        source.unlink()
        link.unlink()
        if then == "changed":
            source.write_text("others\n")
            link.symlink_to("others")
        elif then == "linked":
            source.symlink_to("others")
            link.write_text("others\n")
    mirror = await rig.started()
    report = await mirror.barrier(20, allow_deletes=True)
    assert (report.kept, report.replaced, mirror.status().conflicts) == ((), (), ())
    assert rig.equal()


async def test_halted_at_the_start_can_be_confirmed(rig: Rig) -> None:
    for number in range(160):
        rig.write(f"f{number:02}.py")
    await (await rig.started()).stop()
    for number in range(110):
        (rig.local / f"f{number:02}.py").unlink()
    mirror = await rig.started()
    assert mirror.status().state is MirrorState.HALTED
    assert "110 of 160" in mirror.status().describe()
    assert len(list(rig.far.iterdir())) == 160
    assert (await mirror.barrier(20, allow_deletes=True)).deleted == 110
    assert rig.equal()


async def test_restored_files_end_the_halt(rig: Rig) -> None:
    for number in range(130):
        rig.write(f"dir/f{number:02}.py")
    rig.write("main.py")
    mirror = await rig.started()
    (rig.local / "dir").rename(rig.local.parent / "away")
    await until(lambda: mirror.status().state is MirrorState.HALTED, "the halt")
    (rig.local.parent / "away").rename(rig.local / "dir")
    await until(lambda: mirror.status().state is MirrorState.IN_SYNC, "the end of the halt")
    await mirror.barrier(20)
    assert rig.equal()


async def test_a_renamed_directory_is_no_delete(rig: Rig) -> None:
    for number in range(30):
        rig.write(f"old/f{number:02}.py", f"{number}\n")
    mirror = await rig.started()
    (rig.local / "old").rename(rig.local / "new")
    await mirror.barrier(20)
    assert rig.equal()


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


async def test_take_over_as_a_person_sees_it(project: Project) -> None:
    await project.up("node2", "--scheduler", "none")
    second = Project(project.lab, _made(project.base / "o"))
    second.configure(f'[mirror]\nremote = "{project.remote()}"\n')
    try:
        refused = await second.tk("up", "node2", "--scheduler", "none", code=9)
        assert "already has a mirror" in refused.err and str(project.dir) in refused.err
        up = await second.tk("up", "node2", "--scheduler", "none", "--take-over")
        assert f"mirror: taken over from {project.dir}" in up.err
        project.write("2.py", "the first edits\n")
        halted = await project.tk("sync", code=9)
        assert "another mirror has taken over" in halted.err and str(second.dir) in halted.err
        await second.tk("down")
    finally:
        await second.close()
    await project.tk("down")
