"""Whatever the kernel, watchdog or the system's limits drop: it is noticed, and nothing is
missing in the end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from watchdog.events import FileSystemEvent

from tests.support.mirror_rig import until
from tests.support.watch_rig import Watched
from tunnelkit.mirror import watch, watches
from tunnelkit.mirror.watch import Watcher

REPO = Path(__file__).resolve().parents[3]
linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def fill(root: Path, count: int) -> None:
    for number in range(count):
        if number % 200 == 0:
            (root / f"d{number}").mkdir()
        (root / f"d{number // 200 * 200}/f{number}").touch()


async def test_20_000_files_while_its_thread_stands_still(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.start()
    lock = threading.Lock()
    handle = Watcher.on_any_event

    def slow(self: Watcher, event: FileSystemEvent) -> None:
        with lock:
            handle(self, event)

    monkeypatch.setattr(Watcher, "on_any_event", slow)
    with lock:
        await asyncio.to_thread(fill, watched.root, 20_000)
        assert not await watched.watcher.flush(0.2)
        assert not watched.complete()
        watched.apply(type(watched.watcher.take())(everything="not flushed"))
        assert watched.complete()
        (watched.root / "d0/f0").write_text("later")
    await watched.until(watched.complete, 60.0)
    assert "many" in [found.everything for found in watched.batches]
    # Once it has caught up, a flush is enough again.
    async with asyncio.timeout(60):
        while not await watched.exact():
            pass
    assert watched.complete()


# A process of its own, since a stop signal stops every thread of it.
CHILD = """
import asyncio, json, sys
from pathlib import Path
from tests.support.watch_rig import Watched

async def main():
    it = Watched(Path(sys.argv[1]))
    await it.start()
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    said = {"ready": True}
    while True:
        said |= {"alive": it.watcher.alive(), "problem": it.watcher.problem}
        print(json.dumps(said), flush=True)
        line = (await lines.readline()).decode().split()
        said = {}
        if not line:
            break
        if line[0] == "exact":
            said["scanned"] = not await it.exact()
            said["why"] = it.batches[-1].everything
            said["complete"] = it.complete()
        elif line[0] == "batch":
            said["why"] = (await it.batch()).everything
            said["complete"] = it.complete()
        elif line[0] == "write":
            Path(line[1]).write_text(line[2])
    await it.watcher.stop()

asyncio.run(main())
"""


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def ask(self, line: str = "") -> dict[str, object]:
        assert self.process.stdin is not None and self.process.stdout is not None
        if line:
            self.process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(60):
            answer = json.loads(await self.process.stdout.readline() or "{}")
        assert isinstance(answer, dict)
        return answer

    async def until(self, line: str, key: str, value: object) -> dict[str, object]:
        async with asyncio.timeout(60):
            while (answer := await self.ask(line))[key] != value:
                await asyncio.sleep(0.05)
            return answer

    async def problem(self) -> str:
        async with asyncio.timeout(60):
            while (problem := (await self.ask("exact"))["problem"]) is None:
                await asyncio.sleep(0.05)
            return str(problem)


class Children:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[asyncio.subprocess.Process] = []

    async def start(self, *wrapper: str) -> Child:
        process = await asyncio.create_subprocess_exec(
            *wrapper,
            sys.executable,
            "-c",
            CHILD,
            str(self.root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPO,
        )
        self.made.append(process)
        return Child(process)


@pytest.fixture
async def children(tmp_path: Path) -> AsyncIterator[Children]:
    root = tmp_path / "root"
    root.mkdir()
    made = Children(root)
    yield made
    for process in made.made:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@linux
async def test_the_kernel_overflows_while_the_process_is_stopped(children: Children) -> None:
    for number in range(10):
        (children.root / f"d{number}").mkdir()
    child = await children.start()
    assert (await child.ask())["alive"]
    os.kill(child.process.pid, signal.SIGSTOP)
    for number in range(8_000):  # three events each
        (children.root / f"d{number % 10}/f{number}").write_text("x")
    os.kill(child.process.pid, signal.SIGCONT)
    answer = await child.ask("batch")
    whys = {answer["why"]}
    while not answer["complete"]:
        answer = await child.ask("batch")
        whys.add(answer["why"])
    assert whys & {"overflow", "many"}
    # And it goes on as before.
    await child.ask(f"write {children.root}/d3/f3 changed")
    assert (await child.until("exact", "scanned", False))["complete"]


def _namespace(**limits: int) -> list[str]:
    """A command prefix that runs the rest with limits of its own."""
    lines = [f"echo {value} > /proc/sys/user/{name}" for name, value in limits.items()]
    return ["unshare", "-Ur", "sh", "-c", "; ".join([*lines, 'exec "$@"']), "sh"]


def _can_limit() -> bool:
    prefix = _namespace(max_inotify_watches=7)
    ask = ["cat", "/proc/sys/user/max_inotify_watches"]
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*prefix, *ask], capture_output=True).stdout == b"7\n"


limited = pytest.mark.skipif(
    not _can_limit(), reason="this user may not make a user namespace (or it is no Linux)"
)


@limited
@pytest.mark.parametrize("name", ["max_inotify_watches", "max_inotify_instances"])
async def test_no_watch_at_all(children: Children, name: str) -> None:
    child = await children.start(*_namespace(**{name: 0}))
    answer = await child.ask()
    assert answer["alive"] is False
    assert f"user.{name} = 0" in str(answer["problem"])
    assert f"sudo sysctl user.{name}=" in str(answer["problem"])
    assert await child.ask("exact") | {"scanned": True, "complete": True} == await child.ask(
        "exact"
    )


@limited
async def test_not_enough_watches_at_the_start_and_then_enough(children: Children) -> None:
    for number in range(30):
        (children.root / f"d{number}").mkdir()
    child = await children.start(*_namespace(max_inotify_watches=20))
    await child.ask()
    problem = await child.problem()
    assert "user.max_inotify_watches = 20" in problem
    assert "more directories" in problem
    await child.ask("write /proc/sys/user/max_inotify_watches 1000")
    await child.until("look", "alive", True)
    (children.root / "d29/x").write_text("x")
    assert (await child.until("exact", "scanned", False))["complete"]


@limited
async def test_the_last_watch_is_used_up_later(children: Children) -> None:
    child = await children.start(*_namespace(max_inotify_watches=20))
    assert (await child.ask())["alive"]
    for number in range(30):
        (children.root / f"d{number}").mkdir()
    assert "no file events for" in await child.problem()
    (children.root / "d29/x").write_text("x")
    assert await child.ask("exact") | {"scanned": True, "complete": True} == await child.ask(
        "exact"
    )


async def test_watchdogs_own_complaint_is_heard(watched: Watched) -> None:
    await watched.start()
    logging.getLogger("watchdog.observers.inotify_c").warning("Inotify queue overflowed")
    assert (await watched.batch()).everything == "overflow"
    await watched.watcher.stop()
    assert not logging.getLogger("watchdog.observers").handlers


async def test_the_root_is_moved_away_and_another_comes(watched: Watched, tmp_path: Path) -> None:
    (watched.root / "a").write_text("1")
    await watched.start()
    watched.root.rename(tmp_path / "away")
    watched.root.mkdir()
    (watched.root / "b").write_text("2")
    assert watched.watcher.take().everything == "root"
    watched.apply(type(watched.watcher.take())(everything="root"))
    assert (await watched.batch()).everything in {"root", "restart"}
    await watched.until(watched.complete)
    (watched.root / "c").write_text("3")
    await watched.until(watched.complete)
    assert watched.watcher.alive()


async def test_a_dead_observer_is_begun_anew_but_only_once(watched: Watched) -> None:
    await watched.start()

    def kill() -> None:
        observer = watched.watcher._observation._observer
        assert observer is not None
        for emitter in list(observer.emitters):
            emitter.stop()

    kill()
    assert (await watched.batch()).everything == "restart"
    assert watched.watcher.alive()
    (watched.root / "a").write_text("1")
    await watched.until(watched.complete)
    kill()
    assert (await watched.batch()).everything == "unwatched"
    assert not watched.watcher.alive()
    assert "stopped" in str(watched.watcher.problem)
    assert watched.watcher.take().everything == "unwatched"


async def test_a_deaf_observer_is_begun_anew(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.start()
    monkeypatch.setattr(watch, "_DEAF_S", 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "on_any_event", lambda self, event: None)
        for _ in range(3):
            assert not await watched.watcher.flush(0.05)
        assert (await watched.batch()).everything == "restart"
    assert await watched.watcher.flush(10.0)


async def test_after_a_sleep_everything_is_looked_at(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch.Pauses, "noticed", lambda self: True)
    await watched.start()
    assert (await watched.batch()).everything == "sleep"


@linux
async def test_unwatched_directories_are_found(watched: Watched) -> None:
    for name in ("a/b", "c", "node_modules/x"):
        (watched.root / name).mkdir(parents=True)
    await watched.start()
    inodes = watches.watched_inodes()
    assert inodes is not None
    assert watches.unwatched(str(watched.root), inodes, lambda path: True) == []
    inodes -= {(watched.root / name).stat().st_ino for name in ("a/b", "node_modules/x")}
    found = watches.unwatched(str(watched.root), inodes, watched._interesting)
    assert found == [str(watched.root / "a/b")]


async def test_an_explanation_of_another_error() -> None:
    text = watches.explain(PermissionError(13, "Permission denied"))
    assert text == "file events can't be had: Permission denied"


EDITS = """
import os, random, shutil, sys
from contextlib import suppress
dice = random.Random(int(sys.argv[1]))
names = ["a", "b", "c", "d.py", "e.py"]
def path(): return "/".join(dice.choices(names, k=dice.randint(1, 3)))
for _ in range(400):
    one, other = path(), path()
    with suppress(OSError, shutil.Error):
        match dice.randrange(7):
            case 0: os.makedirs(one)
            case 1 | 2: open(one, "w").write("x" * dice.randrange(99))
            case 3: os.rename(one, other)
            case 4: shutil.rmtree(one) if os.path.isdir(one) else os.unlink(one)
            case 5: os.chmod(one, dice.choice([0o755, 0o700]))
            case 6: os.symlink("a", one)
"""


async def test_random_edits_by_another_process(watched: Watched) -> None:
    """Each flush makes it exact, also in the middle of things."""
    await watched.start()
    dice = random.Random(4)
    flushed = 0
    for _ in range(6):
        editor = await asyncio.create_subprocess_exec(
            sys.executable, "-c", EDITS, str(dice.random()).lstrip("0."), cwd=watched.root
        )
        waiting = asyncio.create_task(editor.wait())
        while not waiting.done():
            flushed += await watched.exact()
            await asyncio.sleep(0)
        await waiting
        flushed += await watched.exact()
        assert watched.complete()
    assert flushed, "this was a test of scans only"


async def test_it_wakes_again_after_each_take(watched: Watched) -> None:
    await watched.start()
    for number in range(20):
        (watched.root / f"f{number}").write_text("x")
        await until(watched.woken.is_set, "an event")
        watched.woken.clear()
        watched.apply(watched.watcher.take())  # without settling, as a barrier does
    assert await watched.exact()
    assert watched.complete()
