"""The mirror over a real sshd on loopback, with real ssh and real rsync: what arrives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection

import pytest

from tests.support.mirror_rig import Rig, needs_rsync, tree, until
from tunnelkit.mirror.api import MirrorState
from tunnelkit.mirror.passes import local_changes
from tunnelkit.mirror.tree.ignore import REPLACED_DIR
from tunnelkit.mirror.tree.scanner import Scan

pytestmark = needs_rsync


async def test_first_copy_is_exact(rig: Rig) -> None:
    rig.write("main.py", "print(1)\n")
    rig.write("run.sh").chmod(0o755)
    rig.write("deep/er/and/deeper.txt")
    (rig.local / "empty").mkdir(mode=0o750)
    (rig.local / "to_main").symlink_to("main.py")
    (rig.local / "dangling").symlink_to("/nowhere/at all")
    (rig.local / "to_dir").symlink_to("deep")
    mirror = await rig.started()
    assert rig.equal()
    assert mirror.remote_root == str(rig.far)
    assert mirror.status().state is MirrorState.IN_SYNC
    assert mirror.status().files == 6
    assert mirror.status().watching
    assert rig.far.stat().st_mode & 0o777 == 0o700
    assert not (rig.far / REPLACED_DIR).exists()


async def test_nobody_else_may_write_there(rig: Rig) -> None:
    """What a umask of 0002 leaves here is no leave for a group there."""
    for name, mode in (("a", 0o664), ("b", 0o666), ("c", 0o777), ("d", 0o4755), ("e", 0o600)):
        rig.write(f"open/{name}").chmod(mode)
    (rig.local / "open").chmod(0o2777)
    mirror = await rig.started()
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (rig.far / "open").iterdir()}
    assert modes == {"a": 0o644, "b": 0o644, "c": 0o755, "d": 0o755, "e": 0o600}
    assert (rig.far / "open").stat().st_mode & 0o777 == 0o755
    rig.write("open/a", "2\n").chmod(0o666)
    await mirror.barrier(20)
    assert (rig.far / "open/a").stat().st_mode & 0o777 == 0o644
    assert not (await mirror.barrier(20)).sent, "it is as it should be"


async def test_odd_names_are_exact(rig: Rig) -> None:
    names = [b"-rf", b"--delete", b"a b", b" ", b"new\nline", b"\xff\xfe", b"#hash", b";semi", b"*"]
    names += [b"$HOME", b"`id`", b"'q\"", b"back\\slash", b"\\#012", b"~", b"[x]", b"a:b", b"tab\t"]
    names += ["täst".encode(), b"trailing\n", b"\r", b"!x", b"host:x", b"%i %n"]
    top = os.fsencode(rig.local)
    for name in names:
        os.mkdir(os.path.join(top, b"d" + name))
        for path in (name, os.path.join(b"d" + name, name)):
            with open(os.path.join(top, path), "wb") as stream:
                stream.write(path)
    mirror = await rig.started()
    assert rig.equal()
    for name in names:
        os.unlink(os.path.join(top, name))
        with open(os.path.join(top, b"d" + name, name), "ab") as stream:
            stream.write(b"more")
    await mirror.barrier(20, allow_deletes=True)
    assert rig.equal()


async def test_what_comes_back_after_the_look_is_still_the_same_file(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = rig.write("a.py", "1\n")
    (rig.local / "to_a").symlink_to("a.py")
    mirror = await rig.started()
    real, late = local_changes.classify_missing, list[str]()

    def back(root: str, absent: Collection[str], scan: Scan) -> object:
        late.extend(absent)
        if absent and not source.exists():
            source.write_text("2\n")
            (rig.local / "to_a").symlink_to("b.py")
        return real(root, absent, scan)

    monkeypatch.setattr(local_changes, "classify_missing", back)
    source.unlink()
    (rig.local / "to_a").unlink()
    await until(lambda: source.exists(), "a look in between")
    report = await mirror.barrier(20)
    assert "a.py" in late and rig.equal()
    assert report.replaced == () and not (rig.far / REPLACED_DIR).exists()


async def test_ignored_files_stay_home(rig: Rig) -> None:
    rig.write(".gitignore", "*.log\nout/\n!keep.log\n")
    rig.write("sub/.gitignore", "!special.log\nlocal.txt\n")
    for path in ("a.log", "keep.log", "out/x", "sub/special.log", "sub/local.txt", "local.txt"):
        rig.write(path)
    for path in (".git/HEAD", "__pycache__/a.pyc", ".venv/bin/python", "data/big", "n/data/big"):
        rig.write(path)
    await rig.started(exclude=["/data/"])
    assert {os.fsdecode(path) for path in tree(rig.far)} == {
        ".gitignore",
        "keep.log",
        "local.txt",
        "n",
        "n/data",
        "n/data/big",
        "sub",
        "sub/.gitignore",
        "sub/special.log",
    }


async def test_a_file_that_becomes_ignored_stays_there(rig: Rig) -> None:
    rig.write("notes.txt")
    rig.write("main.py")
    mirror = await rig.started()
    rig.write(".gitignore", "notes.txt\n")
    await mirror.barrier(20)
    (rig.local / "notes.txt").unlink()
    await mirror.barrier(20)
    assert (rig.far / "notes.txt").exists()


async def test_edit_then_barrier(rig: Rig) -> None:
    source = rig.write("main.py", "0\n")
    mirror = await rig.started()
    for number in range(1, 16):
        source.write_text(f"{number % 10}\n")  # same size, often in the same tick
        await mirror.barrier(20)
        assert (rig.far / "main.py").read_text() == f"{number % 10}\n"


async def test_an_edit_with_same_size_and_mtime_is_seen(rig: Rig) -> None:
    source = rig.write("main.py", "old\n")
    mirror = await rig.started()
    before = source.stat()
    source.write_text("new\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    await mirror.barrier(20)
    assert (rig.far / "main.py").read_text() == "new\n"


async def test_events_push_without_a_barrier(rig: Rig) -> None:
    rig.write("main.py", "1\n")
    await rig.started()
    rig.write("main.py", "2\n")
    await until(lambda: (rig.far / "main.py").read_text() == "2\n", "the edit")
    # as editors save: a temporary renamed over the file
    rig.write("main.py.tmp", "3\n").rename(rig.local / "main.py")
    await until(lambda: rig.equal() and (rig.far / "main.py").read_text() == "3\n", "the rename")
    rig.write("new/deep/down/a.txt")
    await until(rig.equal, "new directories")
    shutil.rmtree(rig.local / "new")
    await until(rig.equal, "the delete")


async def test_barrier_needs_no_events(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    assert mirror._watcher is not None
    await mirror._watcher.stop()
    rig.write("main.py", "edited\n")
    rig.write("a/b/c.txt")
    report = await mirror.barrier(20)
    assert rig.equal()
    assert report.sent == 2


async def test_chmod_and_links(rig: Rig) -> None:
    script = rig.write("run.sh")
    link = rig.local / "link"
    link.symlink_to("one")
    mirror = await rig.started()
    script.chmod(0o755)
    link.unlink()
    link.symlink_to("two")
    await mirror.barrier(20)
    assert rig.equal()


async def test_swaps_of_kind(rig: Rig) -> None:
    rig.write("a/x/file.txt")
    rig.write("a/file.txt")
    rig.write("b")
    rig.write("c/file.txt")
    (rig.local / "l").symlink_to("c")
    mirror = await rig.started()
    shutil.rmtree(rig.local / "a")
    rig.write("a", "now a file\n")
    (rig.local / "b").unlink()
    rig.write("b/inside/now.txt")
    shutil.rmtree(rig.local / "c")
    (rig.local / "c").symlink_to("b")
    (rig.local / "l").unlink()
    rig.write("l/in_a_directory.txt")
    await mirror.barrier(20)
    assert rig.equal()
    (rig.local / "d").mkdir()
    (rig.local / "b").rename(rig.local / "d" / "b")
    (rig.local / "a").rename(rig.local / "b")
    await mirror.barrier(20)
    assert rig.equal()


async def test_restart_keeps_what_is_ours(rig: Rig) -> None:
    for path in ("a.py", "b.py", "c.py"):
        rig.write(path)
    first = await rig.started()
    await first.stop()
    assert first.status().state is MirrorState.STOPPED
    rig.write("d.py", far=True)
    (rig.local / "b.py").unlink()
    rig.write("a.py", "edited offline\n")
    (rig.far / "c.py").unlink()
    await rig.started()
    assert (rig.far / "a.py").read_text() == "edited offline\n"
    assert not (rig.far / "b.py").exists()
    assert (rig.far / "c.py").exists()
    assert (rig.far / "d.py").exists()


async def test_checkout_of_2000_files(rig: Rig) -> None:
    for number in range(2000):
        rig.write(f"d{number % 40}/s{number % 7}/{number}.py", f"{number}\n")
    mirror = await rig.started()
    assert rig.equal()
    for number in range(2000):
        path = rig.local / f"d{number % 40}/s{number % 7}/{number}.py"
        if number % 5 == 0:
            path.unlink()
        else:
            path.write_text(f"other {number}\n")
    await mirror.barrier(60, allow_deletes=True)  # 400 are over the limit
    assert rig.equal()
