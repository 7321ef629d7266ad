"""The kernel's limits on watches and queued events, in processes with limits of their own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[4]
linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


# A process of its own, since a stop signal stops every thread of it.
CHILD = """
import asyncio, json, sys
from pathlib import Path
from tests.support.watch_rig import INOTIFY, WATCHDOG, Watched
from tunnelkit.mirror.watch import event_source
event_source.is_local = lambda root: sys.argv[2] == INOTIFY

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
    def __init__(self, root: Path, source: str) -> None:
        self.root = root
        self._source = source
        self.made: list[asyncio.subprocess.Process] = []

    async def start(self, *wrapper: str) -> Child:
        process = await asyncio.create_subprocess_exec(
            *wrapper,
            sys.executable,
            "-c",
            CHILD,
            str(self.root),
            self._source,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPO,
        )
        self.made.append(process)
        return Child(process)


@pytest.fixture
async def children(tmp_path: Path, source: str) -> AsyncIterator[Children]:
    root = tmp_path / "root"
    root.mkdir()
    made = Children(root, source)
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
