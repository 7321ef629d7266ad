"""Each editor's way to save a file is one batch with the final content, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.watch_rig import WATCHDOG, Watched
from tunnelkit.mirror.watch.coalescer import _GONE_S
from tunnelkit.mirror.watch.watcher import Watcher

NEW = b"new\n" * 5_000


def _pieces(fd: int) -> None:
    for start in range(0, len(NEW), 4_096):
        os.write(fd, NEW[start : start + 4_096])


def _truncate_and_write(file: Path) -> None:
    """nano, VS Code, vim with backupcopy=yes"""
    fd = os.open(file, os.O_WRONLY | os.O_TRUNC)
    _pieces(fd)
    os.fsync(fd)
    os.close(fd)


def _backup_and_new(file: Path) -> None:
    """vim: a trial file, the old one moved to a backup, a new one written, the backup removed"""
    trial = file.with_name("4913")
    os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    trial.unlink()
    backup = file.with_name(file.name + "~")
    file.rename(backup)
    time.sleep(0.01)
    fd = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
    _pieces(fd)
    os.fsync(fd)
    os.close(fd)
    file.chmod(0o644)
    backup.unlink()


def _temporary_and_rename(file: Path) -> None:
    """JetBrains, gedit, kate, black"""
    temporary = file.with_name(file.name + "___jb_tmp___")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    _pieces(fd)
    os.fsync(fd)
    os.close(fd)
    temporary.chmod(0o644)
    temporary.replace(file)


def _rename_while_open(file: Path) -> None:
    temporary = file.with_name(".tmp-1")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    _pieces(fd)
    temporary.replace(file)
    os.close(fd)


def _emacs(file: Path) -> None:
    """a lock that is a dangling link, a backup by renaming, the lock removed"""
    lock = file.with_name(".#" + file.name)
    lock.symlink_to("me@host.1234:5678")
    file.rename(file.with_name(file.name + "~"))
    file.write_bytes(NEW)
    lock.unlink()


def _link_and_unlink(file: Path) -> None:
    """a new name by link(2), as some safe-write libraries do"""
    temporary = file.with_name(".new")
    temporary.write_bytes(NEW)
    file.unlink()
    os.link(temporary, file)
    temporary.unlink()


STYLES = [
    _truncate_and_write,
    _backup_and_new,
    _temporary_and_rename,
    _rename_while_open,
    _emacs,
    _link_and_unlink,
]


@pytest.mark.parametrize("save", STYLES, ids=lambda save: save.__name__.strip("_"))
async def test_a_save_is_one_batch_with_the_final_content(
    watched: Watched,
    source: str,
    save: Callable[[Path], None],
) -> None:
    file = watched.root / "train.py"
    await watched.start()
    for _ in range(20):
        await _write_old(watched, file)
        saving = asyncio.create_task(asyncio.to_thread(save, file))
        while "train.py" not in (await watched.batch()).paths:
            pass  # a trial file that came and went
        await saving
        assert await watched.exact()
        assert watched.complete()
        # Whoever saves was not halted by the machine for longer than a save is waited for.
        if watched.longest_pause_s() < _GONE_S / 2:
            break
    found = [content["train.py"] for content in watched.contents if "train.py" in content]
    assert found == [NEW]
    late = watched.batches[-1].paths
    if source == WATCHDOG:  # its threads may be late: with word of what is gone, too
        late = frozenset(path for path in late if (watched.root / path).exists())
    assert late <= {"train.py"}  # a late attribute at most


async def _write_old(watched: Watched, file: Path) -> None:
    """As before the save, and seen."""
    for other in file.parent.iterdir():
        other.unlink()
    file.write_bytes(b"old")
    await watched.exact()
    watched.woken.clear()
    watched.forget()


async def test_two_saves_in_a_row_are_two_batches(watched: Watched) -> None:
    await watched.start()
    for text in (b"1", b"2"):
        (watched.root / "a").write_bytes(text)
        await watched.batch()
    assert [found["a"] for found in watched.contents] == [b"1", b"2"]


async def test_chmod_alone_is_told(watched: Watched) -> None:
    (watched.root / "d").mkdir()
    (watched.root / "d/run.sh").touch()
    await watched.start()
    (watched.root / "d/run.sh").chmod(0o755)
    await watched.batch()
    (watched.root / "d").chmod(0o700)
    await watched.until(lambda: bool(watched.scan and watched.scan.entries["d"].mode == 0o700))
    assert watched.complete()


async def test_a_file_that_is_ignored_wakes_nobody(watched: Watched) -> None:
    (watched.root / ".gitignore").write_text("*.log\nbuild/\n")
    (watched.root / "build").mkdir()
    await watched.start()
    (watched.root / "build/x").write_text("x")
    (watched.root / "a.log").write_text("x")
    (watched.root / "__pycache__").mkdir()
    assert await watched.exact()
    assert watched.batches == [watched.watcher.take()]
    assert not watched.woken.is_set()


async def test_names_that_are_no_text(watched: Watched) -> None:
    await watched.start()
    for name in (b"-rf", b"a\nb", b"\xff\xfe", "\u00fc".encode()):
        fd = os.open(os.fsencode(watched.root) + b"/" + name, os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"x")
        os.close(fd)
    assert await watched.exact()
    assert watched.complete()
    assert watched.scan is not None and len(watched.scan.entries) == 4


async def test_nested_new_directories_filled_at_once(watched: Watched) -> None:
    await watched.start()
    script = "mkdir -p a/b/c/d e/f; for i in $(seq 200); do echo $i > a/b/c/d/$i; done; touch e/f/g"
    other = await asyncio.create_subprocess_exec("sh", "-c", script, cwd=watched.root)
    await watched.until(watched.complete)
    assert await other.wait() == 0
    await watched.exact()
    assert watched.complete()
    assert watched.scan is not None and len(watched.scan.entries) == 200 + 7


async def test_a_directory_that_is_moved_in_and_goes_on_being_watched(
    watched: Watched,
    tmp_path: Path,
) -> None:
    (tmp_path / "outside/x").mkdir(parents=True)
    (tmp_path / "outside/x/y").write_text("1")
    await watched.start()
    (tmp_path / "outside").rename(watched.root / "inside")
    await watched.until(watched.complete)
    (watched.root / "inside/x/y").write_text("22")
    (watched.root / "inside/x/z").mkdir()
    await watched.until(watched.complete)
    (watched.root / "inside").rename(tmp_path / "away")
    await watched.until(watched.complete)
    assert watched.scan is not None and not watched.scan.entries


async def test_a_new_directory_is_told_twice(watched: Watched) -> None:
    await watched.start()
    (watched.root / "d").mkdir()
    await watched.batch()
    await watched.batch()
    assert [found.paths for found in watched.batches] == [{"d"}, {"d"}]


async def test_a_checkout_is_one_batch(watched: Watched) -> None:
    def git(*command: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *command],
            cwd=watched.root,
            check=True,
            capture_output=True,
        )

    git("init", "-q", "-b", "one")
    (watched.root / "pkg").mkdir()
    for branch in ("one", "two"):
        if branch == "two":
            git("checkout", "-q", "-b", "two")
        for number in range(1_000):
            (watched.root / f"pkg/m{number}.py").write_text(f"{branch} {number}\n")
        git("add", "-A")
        git("commit", "-q", "-m", branch)
    await watched.start()
    checkout = await asyncio.create_subprocess_exec(
        "git", "checkout", "-q", "one", cwd=watched.root
    )
    assert (await watched.batch()).everything in {"git", "many"}
    assert watched.complete()
    assert await checkout.wait() == 0
    assert (watched.root / "pkg/m999.py").read_text() == "one 999\n"
    # Events that come late tell nothing new.
    found = watched.scan
    await watched.exact()
    assert watched.scan == found


async def test_while_git_holds_its_lock_nothing_settles(watched: Watched) -> None:
    (watched.root / ".git").mkdir()
    await watched.start()
    lock = watched.root / ".git/index.lock"
    lock.touch()
    (watched.root / "a").write_text("1")
    settled = asyncio.create_task(watched.batch())
    done, _ = await asyncio.wait([settled], timeout=0.5)
    assert not done
    (watched.root / "b").write_text("2")
    lock.unlink()
    assert (await settled).everything == "git"


def _new_index(root: Path) -> None:
    """As at the end of each work of git's."""
    draft = root / ".git/index.lock"
    draft.write_text("new")
    draft.replace(root / ".git/index")


async def test_a_checkout_that_nobody_saw_is_looked_at_as_a_whole(watched: Watched) -> None:
    (watched.root / ".git").mkdir()
    _new_index(watched.root)
    await watched.start()
    # Done before the loop runs again; of its events only some may have come by then.
    for number in range(30):
        (watched.root / f"f{number}").write_text("1")
    _new_index(watched.root)
    assert (await watched.batch()).everything == "git"
    # A single save, after an index was refreshed (`git status`), is no checkout.
    assert await watched.exact()
    _new_index(watched.root)
    (watched.root / "f1").write_text("2")
    assert (await watched.batch()).paths == {"f1"}


async def test_git_at_work_under_a_look_is_noticed(watched: Watched) -> None:
    (watched.root / ".git").mkdir()
    await watched.start()
    (watched.root / "a").write_text("1")
    assert (await watched.batch()).paths == {"a"}
    assert not await watched.watcher.git_began()
    lock = watched.root / ".git/index.lock"
    lock.touch()
    began = asyncio.create_task(watched.watcher.git_began())
    done, _ = await asyncio.wait([began], timeout=0.2)
    assert not done
    lock.unlink()
    assert await began
    assert watched.watcher.take().everything == "git"
    assert not await watched.watcher.git_began()
    _new_index(watched.root)  # it came and went
    assert await watched.watcher.git_began()


@pytest.mark.parametrize("git", [True, False])
async def test_a_flush_leaves_no_trace(watched: Watched, git: bool) -> None:
    if git:
        (watched.root / ".git").mkdir()
    await watched.start()
    for number in range(50):
        (watched.root / f"f{number}").write_text("x")
        assert await watched.watcher.flush(10.0)
        assert watched.watcher.take().paths == {f"f{number}"}
    assert not [name for _, _, names in os.walk(watched.root) for name in names if "cookie" in name]


async def test_a_flush_that_cannot_be_says_so(tmp_path: Path) -> None:
    watcher = Watcher(str(tmp_path / "gone"), lambda: None, interesting=lambda path: True)
    await watcher.start()
    assert not await watcher.flush(5.0)
    assert watcher.take().everything == "unwatched"
    await watcher.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the hold-back is that of inotify's reader")
async def test_events_that_are_held_back_are_waited_for_or_owned_up_to(
    watched: Watched,
    tmp_path: Path,
) -> None:
    """A file that leaves the tree: its event is held for its other half, and all behind it."""
    (watched.root / "a").write_text("1")
    await watched.start()
    (watched.root / "a").rename(tmp_path / "a")
    (watched.root / "b").write_text("2")
    if await watched.watcher.flush(0.05):  # where nothing is held back
        watched.apply(watched.watcher.take())
        assert watched.complete()
    assert await watched.watcher.flush(10.0)
    watched.apply(watched.watcher.take())
    assert watched.complete()
