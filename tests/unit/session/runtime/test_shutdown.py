"""The end of a session: whatever hangs or fails, the rest is done and the process ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.ports import free_port
from tunnelkit.config.load import load
from tunnelkit.errors import SchedulerError
from tunnelkit.session.backends.ssh import SSH
from tunnelkit.session.host import SessionHost
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import SessionPaths, session_paths
from tunnelkit.session.runtime.shutdown import ShutdownSequence
from tunnelkit.session.session import Session

PATIENCE_S = 30.0


async def hang() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise SchedulerError("no answer")


async def break_() -> None:
    raise ZeroDivisionError


class Deaf:
    """Something that does not let go when it is cancelled, until the test ends."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.over = asyncio.Event()

    async def run(self) -> None:
        while not self.over.is_set():
            try:
                await self.over.wait()
            except asyncio.CancelledError:
                self.cancelled += 1


async def test_what_hangs_or_fails_does_not_keep_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    deaf = Deaf()
    async with asyncio.timeout(PATIENCE_S):
        ending = ShutdownSequence(budget_s=0.1)
        with caplog.at_level(logging.WARNING):
            assert not await ending.step("one", hang(), 5.0)
            assert await ending.step("two", work(), 5.0)
            found = await ending.together(
                ("three", fail(), 5.0), ("four", work(), 5.0), ("five", deaf.run(), 0.1)
            )
            assert not await ending.step("six", break_(), 5.0)
    assert found == [False, True, False]
    assert done == [1, 1] and deaf.cancelled == 1
    assert ending.given_up == ["one", "five"]
    told = caplog.text
    assert "the end of one takes over" in told and "the end of five takes over" in told
    assert "the end of three: no answer" in told and "ZeroDivisionError" in told
    deaf.over.set()


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionPaths]:
    """Places of a session; short, for their sockets."""
    base = Path(tempfile.mkdtemp(prefix="tko", dir="/tmp"))
    for name in ("run", "project"):
        (base / name).mkdir(mode=0o700)
    for name in ("STATE", "RUNTIME", "CONFIG"):
        place = base / ("run" if name == "RUNTIME" else name.lower())
        monkeypatch.setenv(f"TK_{name}_DIR", str(place))
    (base / "project" / "tunnelkit.toml").write_text(
        f'[cluster]\nlogin = "login"\n[debug]\nport = {free_port()}\n'
    )
    made = session_paths(base / "project")
    made.make()
    yield made
    shutil.rmtree(base)


def session(paths: SessionPaths) -> Session:
    launch = LaunchSpec(load(Path(paths.runtime).parents[2] / "project", environ={}), None)
    host = SessionHost(_no_answer, say=lambda text: None, changed=lambda: None)
    return Session(launch, paths, SSH, host)


async def _no_answer(prompt: str, echo: bool) -> str | None:
    return None


class Agent:
    """An agent that takes no notice."""

    is_up = True

    def __getattr__(self, name: str) -> Any:
        async def never(*args: Any, **more: Any) -> None:
            await hang()

        return never


async def test_each_part_of_a_session_may_hang(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session(paths)
    assert made.files.mirrors is not None
    monkeypatch.setattr(made.agents, "client", Agent())
    made.cluster.job = SimpleNamespace(cancel=hang, foreign=False)  # type: ignore[assignment]

    async def ignored(*args: Any, **more: Any) -> None:
        await hang()

    parts = (made.loops, made.forwards, made.editor_port, made.link)
    for part in parts:
        monkeypatch.setattr(part, "close", ignored)
    monkeypatch.setattr(made.files.mirrors, "stop", ignored)
    async with asyncio.timeout(PATIENCE_S):
        ending = ShutdownSequence(budget_s=0.1)
        await made.down(ending)
    assert ending.given_up == [
        "the agent",
        "the job",
        "the debug loops",
        "the agent's connection",
        "the forwards",
        "the editor port",
        "the mirror",
        "the connection",
    ]
    assert not made.all_ended


@pytest.mark.parametrize(("cancel", "sure"), [(fail, False), (asyncio.Event().set, True)])
async def test_a_job_that_may_live_on_is_not_forgotten(
    paths: SessionPaths, cancel: Any, sure: bool
) -> None:
    made = session(paths)

    async def cancels() -> None:
        with contextlib.suppress(TypeError):
            await cancel()

    made.cluster.job = SimpleNamespace(cancel=cancels, foreign=False)  # type: ignore[assignment]
    async with asyncio.timeout(PATIENCE_S):
        await made.down()
    assert made.all_ended is sure


def test_a_thread_that_never_ends_is_cut_off_with_its_stack() -> None:
    script = (
        "import asyncio, threading\n"
        "from tunnelkit.session.daemon import _cut_off\n"
        "def stuck(): threading.Event().wait()\n"
        "async def main():\n"
        "    asyncio.get_running_loop().run_in_executor(None, stuck)\n"
        "    _cut_off(0.3)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "in stuck" in done.stderr
