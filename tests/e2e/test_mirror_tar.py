"""Where there is no usable rsync, files go by a tar stream: the same promises, by other means."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.far_path import far_path
from tests.support.mirror_rig import Rig, children, needs_rsync, tree, until
from tests.support.mirror_sshd import Sshd, descendants
from tunnelkit.errors import ConnectionFailed
from tunnelkit.mirror.api import MirrorState
from tunnelkit.mirror.transfer import tar as tar_module
from tunnelkit.mirror.transfer.base import FetchRule
from tunnelkit.mirror.transfer.tar import TarTransfer
from tunnelkit.mirror.transfer.tar_scripts import UNPACK

pytestmark = [pytest.mark.slow, needs_rsync]  # and its sshd


@pytest.fixture
def rig(rsync_rig: Rig) -> Rig:
    """Without an agent, so that every file goes by the transfer."""
    return rsync_rig


TARS = {"tar": "tar (GNU tar) 1.34", "bsdtar": "bsdtar 3.6.2", "busybox": "tar (busybox) 1.35"}


@pytest.fixture(params=TARS)
def far_tar(request: pytest.FixtureRequest, sshd: Sshd, tmp_path: Path) -> Iterator[str]:
    """The name of the tar that a login host without rsync has."""
    with far_path(sshd, tmp_path / "bin", without=("rsync",), tar=request.param):
        yield request.param


@pytest.fixture
def no_rsync(sshd: Sshd, tmp_path: Path) -> Iterator[None]:
    """A login host without rsync."""
    with far_path(sshd, tmp_path / "bin", without=("rsync",)):
        yield


def odd_tree(root: Path) -> None:
    """Every kind of name, mode and entry that is mirrored."""
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/plain.txt").write_text("plain\n")
    (root / "a/b/run.sh").write_text("#!/bin/sh\n")
    (root / "a/b/run.sh").chmod(0o755)
    (root / "-rf\nnew line").write_text("dash\n")
    (root / "#spaced out/ $HOME 'q\"\\").parent.mkdir()
    (root / "#spaced out/ $HOME 'q\"\\").write_text("quotes\n")
    (root / "é").mkdir()
    (root / "é/ü").write_text("u\n")
    odd = os.fsencode(root) + b"/b\xff\xfe"
    os.mkdir(odd)
    Path(os.fsdecode(odd + b"/\xe9 \n")).write_text("not UTF-8\n")
    (root / ("long" * 40)).mkdir()
    (root / ("long" * 40) / ("name" * 50)).write_text("long\n")
    (root / "inside").symlink_to("a/b")
    (root / "outside").symlink_to("/etc/passwd")
    (root / "dangling\n").symlink_to("no such -\n")
    (root / "empty").mkdir()
    (root / "empty.txt").touch()
    (root / "closed").mkdir()
    (root / "closed/file").write_text("in a closed directory\n")
    (root / "closed").chmod(0o500)


def names(root: Path) -> list[str]:
    return [os.fsdecode(name) for name in tree(root)]


def seconds(found: dict[bytes, tuple[object, ...]]) -> dict[bytes, tuple[object, ...]]:
    """The tree with its times in whole seconds: some tars know no finer ones."""
    return {
        name: (*facts[:3], int(str(facts[3])) // 10**9) if facts[0] == "file" else facts
        for name, facts in found.items()
    }


async def test_all_arrives_exactly(rig: Rig, far_tar: str) -> None:
    odd_tree(rig.local)
    transfer = TarTransfer(rig.remote, str(rig.local), far_tar=TARS[far_tar])
    rig.far.mkdir(parents=True)
    root = str(rig.far)
    told: list[bytes] = []
    for _ in range(2):  # into nothing, then over what is there
        done = await transfer.push(names(rig.local), root, size_bytes=99, on_output=told.append)
        assert (done.exit_code, done.error_text) == (0, "")
        if far_tar == "busybox":
            assert seconds(tree(rig.far)) == seconds(tree(rig.local))
        else:
            assert tree(rig.far) == tree(rig.local)
    assert told
    assert await transfer.differing(names(rig.local), root, size_bytes=99) == set()
    assert not (rig.far / ".tk-replaced").exists()

    # the way back, into an empty directory
    here = rig.local.with_name("brought")
    here.mkdir()
    files = [name for name, facts in zip(names(rig.local), tree(rig.local).values(), strict=True)
             if facts[0] != "dir"]  # fmt: skip
    back = TarTransfer(rig.remote, str(here), far_tar=TARS[far_tar])
    done = await back.fetch(files, root, rule=FetchRule(), size_bytes=99)
    assert done.exit_code == 0, done
    for name in files:
        assert seconds(tree(here))[os.fsencode(name)] == seconds(tree(rig.local))[os.fsencode(name)]


async def test_differing_names_what_differs(rig: Rig, no_rsync: None) -> None:
    for name in ("same", "content", "mode", "time", "gone", "kind"):
        rig.write(name)
    (rig.local / "link").symlink_to("same")
    rig.far.mkdir(parents=True)
    transfer = TarTransfer(rig.remote, str(rig.local), far_tar=TARS["tar"])
    await transfer.push(names(rig.local), str(rig.far), size_bytes=9)
    info = (rig.far / "content").stat()
    (rig.far / "content").write_text("y\n")
    os.utime(rig.far / "content", ns=(info.st_mtime_ns, info.st_mtime_ns))
    (rig.far / "mode").chmod(0o640)
    os.utime(rig.far / "time", (1, 1))
    (rig.far / "gone").unlink()
    (rig.far / "kind").unlink()
    (rig.far / "kind").mkdir()
    (rig.far / "link").unlink()
    (rig.far / "link").symlink_to("gone")
    found = await transfer.differing(names(rig.local), str(rig.far), size_bytes=9)
    assert found == {"content", "mode", "time", "gone", "kind", "link"}


async def test_adopt_keeps_what_gives_way(rig: Rig, no_rsync: None) -> None:
    for name in ("d/other\n", "equal", "new"):
        rig.write(name, "ours\n")
    (rig.local / "link").symlink_to("new")
    rig.write("d/other\n", "theirs\n", far=True)
    rig.write("equal", "ours\n", far=True)
    (rig.far / "link").symlink_to("elsewhere")
    transfer = TarTransfer(rig.remote, str(rig.local), far_tar=TARS["tar"])
    backup = rig.far / ".tk-replaced" / "stamp"
    wanted = ["d/other\n", "equal", "link", "new"]
    done = await transfer.adopt(wanted, str(rig.far), backup_dir=str(backup), size_bytes=9)
    assert done.exit_code == 0, done
    assert (backup / "d/other\n").read_text() == "theirs\n"
    assert os.readlink(backup / "link") == "elsewhere"
    assert sorted(path.name for path in backup.rglob("*")) == ["d", "link", "other\n"]
    shutil.rmtree(rig.far / ".tk-replaced")
    assert rig.equal()


async def test_no_symlink_is_followed(rig: Rig, no_rsync: None) -> None:
    rig.write("d/file", "ours\n")
    rig.write("e/sub/file", "ours\n")
    rig.write("name", "ours\n")
    elsewhere = rig.home / "elsewhere"
    (elsewhere / "sub").mkdir(parents=True)
    rig.far.mkdir(parents=True)
    (rig.far / "d").symlink_to(elsewhere)
    (rig.far / "e").symlink_to(elsewhere)
    (rig.far / "name").symlink_to(elsewhere)  # a file takes a symlink's place, not its target's
    transfer = TarTransfer(rig.remote, str(rig.local), far_tar=TARS["tar"])
    paths = ["d/file", "e/sub/file", "name"]
    done = await transfer.push(paths, str(rig.far), size_bytes=9)
    assert done.partial
    assert "symlink" in done.error_text
    assert names(elsewhere) == ["sub"]
    assert (rig.far / "name").read_text() == "ours\n"
    assert not (rig.far / "name").is_symlink()
    differ = await transfer.differing(paths, str(rig.far), size_bytes=9)
    assert {"d/file", "e/sub/file"} <= differ
    assert not (rig.far / ".tk-replaced").exists()


async def test_one_that_cannot_go_stays_alone(rig: Rig, no_rsync: None) -> None:
    for name in ("good", "d/good", "taken"):
        rig.write(name, "ours\n")
    rig.write("taken/by a directory", far=True)
    transfer = TarTransfer(rig.remote, str(rig.local), far_tar=TARS["tar"])
    paths = ["good", "d/good", "taken", "not here"]
    done = await transfer.push(paths, str(rig.far), size_bytes=9)
    assert done.partial and "taken" in done.error_text
    assert await transfer.differing(paths, str(rig.far), size_bytes=9) == {"taken", "not here"}
    assert (rig.far / "taken/by a directory").exists()


async def test_a_full_disk_is_named_and_what_is_whole_goes(rig: Rig, no_rsync: None) -> None:
    if os.geteuid() != 0:
        pytest.skip("a small file system to fill takes root to mount")
    rig.far.mkdir(parents=True)
    small = ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(rig.far)]
    if subprocess.run(small, capture_output=True, check=False).returncode:
        pytest.skip("this root may not mount (a container without CAP_SYS_ADMIN)")
    try:
        rig.write("a small one", "ours\n")
        (rig.local / "big").write_bytes(os.urandom(256 << 10))
        transfer = TarTransfer(rig.remote, str(rig.local), far_tar=TARS["tar"])
        done = await transfer.push(["a small one", "big"], str(rig.far), size_bytes=256 << 10)
        assert done.partial and "no space left" in done.error_text.lower()
        assert not (rig.far / "big").exists()
        assert not (rig.far / ".tk-replaced").exists()
        (rig.local / "big").write_text("small now\n")
        done = await transfer.push(["a small one", "big"], str(rig.far), size_bytes=9)
        assert done.exit_code == 0 and rig.equal()
    finally:
        subprocess.run(["umount", str(rig.far)], check=True)


async def test_a_file_that_changes_while_it_is_read_does_not_arrive(
    rig: Rig, no_rsync: None
) -> None:
    rig.write("z calm", "calm\n")
    (rig.local / "moving").write_bytes(bytes(64 << 20))
    rig.write("moving", "before\n", far=True)
    transfer = TarTransfer(rig.remote, str(rig.local), far_tar=TARS["tar"])

    def shrink(data: bytes) -> None:
        os.truncate(rig.local / "moving", 10)

    done = await transfer.push(
        ["z calm", "moving"], str(rig.far), size_bytes=64 << 20, on_output=shrink
    )
    assert done.partial
    assert "moving" in done.error_text
    assert (rig.far / "moving").read_text() == "before\n"
    assert (rig.far / "z calm").read_text() == "calm\n"


@pytest.mark.parametrize("how", ["cut", "silent"])
async def test_a_dead_link_ends_it_and_leaves_the_old_content(
    rig: Rig, no_rsync: None, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (rig.local / "big").write_bytes(os.urandom(64 << 20))
    rig.write("big", "old\n", far=True)
    monkeypatch.setattr(tar_module, "_STALL_S", 3.0)
    transfer = TarTransfer(rig.remote, str(rig.local), far_tar=TARS["tar"])
    sending = asyncio.create_task(transfer.push(["big"], str(rig.far), size_bytes=64 << 20))
    staged = "incoming.*/t/big"
    await until(lambda: any((rig.far / ".tk-replaced").glob(staged)), "the first bytes")
    assert rig.sshd.process is not None
    stopped = []
    for pid in descendants(rig.sshd.process.pid):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        if name.startswith("sshd"):
            os.kill(pid, signal.SIGKILL if how == "cut" else signal.SIGSTOP)
            stopped.append(pid)
    assert stopped
    with pytest.raises(ConnectionFailed, match="broke off") as caught:
        await sending
    assert caught.value.transient
    assert (rig.far / "big").read_text() == "old\n"
    assert not [line for line in children() if line.startswith("ssh\0")]
    if how == "silent":
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    done = await transfer.push(["big"], str(rig.far), size_bytes=64 << 20)
    assert done.exit_code == 0
    assert (rig.far / "big").read_bytes() == (rig.local / "big").read_bytes()
    await until(lambda: not (rig.far / ".tk-replaced").exists(), "the staging directory's end")


async def test_fetch_keeps_newer_and_refuses_what_leads_out(rig: Rig, no_rsync: None) -> None:
    rig.far.mkdir(parents=True)
    for name in ("newer here", "same", "older here", "new"):
        rig.write(name, "theirs\n", far=True)
        os.utime(rig.far / name, (1000, 1000))
    (rig.far / "out").symlink_to("../../etc")
    rig.write("newer here", "ours!\n")
    rig.write("same", "ours!!\n")
    os.utime(rig.local / "same", (1000, 1000))
    rig.write("older here", "ours!\n")
    os.utime(rig.local / "older here", (500, 500))
    transfer = TarTransfer(rig.remote, str(rig.local), far_tar=TARS["tar"])
    rule = FetchRule(newer_stays=True, safe_links=True)
    wanted = ["newer here", "same", "older here", "new", "out"]
    done = await transfer.fetch(wanted, str(rig.far), rule=rule, size_bytes=99)
    assert done.exit_code == 0, done
    assert {name: (rig.local / name).read_text() for name in names(rig.local)} == {
        "newer here": "ours!\n",
        "same": "ours!!\n",
        "older here": "theirs\n",
        "new": "theirs\n",
    }
    kept = rig.local.with_name("kept")
    done = await transfer.fetch(
        ["same", "missing"], str(rig.far), rule=FetchRule(backup_dir=kept), size_bytes=9
    )
    assert done.partial
    assert (kept / "same").read_text() == "ours!!\n"
    assert (rig.local / "same").read_text() == "theirs\n"


async def test_the_mirror_by_tar(rig: Rig, no_rsync: None) -> None:
    odd_tree(rig.local)
    said: list[str] = []
    mirror = await rig.started(say=said.append)
    assert said == ["mirror: no rsync on 127.0.0.1: sending by tar"]
    assert mirror.status().state is MirrorState.IN_SYNC
    assert rig.equal()
    # edits, a rename, a delete, a swap of file and directory
    rig.write("a/b/plain.txt", "changed\n")
    (rig.local / "a/b/run.sh").rename(rig.local / "run2.sh")
    shutil.rmtree(rig.local / "é")
    (rig.local / "é").write_text("a file now\n")
    (rig.local / "empty.txt").unlink()
    (rig.local / "empty.txt").mkdir()
    rig.write("empty.txt/inside")
    await mirror.barrier(60)
    assert rig.equal()
    # outputs come back, a conflict is seen and settled
    rig.write("out/result.bin", "result\n", far=True)
    report = await mirror.pull([str(rig.local / "out")])
    assert report.pulled == ("out/result.bin",)
    rig.write("a/b/plain.txt", "edited there\n", far=True)
    kept = await mirror.resolve([str(rig.local / "a/b/plain.txt")], theirs=True)
    assert kept.replaced == ("a/b/plain.txt",)
    assert (rig.local / "a/b/plain.txt").read_text() == "edited there\n"


@pytest.mark.parametrize("sh", ["dash", "bash"])
def test_the_beat_ends_with_its_script_also_if_it_never_gets_the_signal(
    tmp_path: Path, sh: str
) -> None:
    """One that is told to end before it has begun may not see that: tar had failed so soon."""
    deaf = 'kill() { [ "$1" != -0 ] || command kill "$@"; }\n'
    argv = [sh, "-c", deaf + UNPACK, "tk", str(tmp_path), ""]
    script = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert script.wait(20) != 0
        assert script.stdout is not None
        ready, _, _ = select.select([script.stdout], [], [], 20)
        assert ready and os.read(script.stdout.fileno(), 1 << 10) == b"", "the end of its output"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
        script.stdout.close()
