"""`tk loop` without a session: on a node that one holds already, the same loop right there."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.places import short_name
from tests.support.ports import free_port
from tests.support.tkrig import Terminal
from tunnelkit.demo.dap_client import DapClient
from tunnelkit.errors import UsageError

SOURCE = """\
import sys
word = "WORD"
print("says", word, flush=True)
sys.exit(3)
"""


class Here:
    """A directory with a program, and no configuration at all."""

    def __init__(self, base: Path) -> None:
        self.program = base / "2.py"
        self.port = free_port()
        self.base = base
        self.env = {
            "HOME": str(base),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TK_CONFIG_DIR": str(base / "config"),
            "TK_STATE_DIR": str(base / "state"),
            "TK_RUNTIME_DIR": str(base),
            "TK_DEBUG_PORT": str(self.port),
            "SLURM_JOB_ID": "4711",
        }

    async def loop(self, *command: str) -> Terminal:
        process = await asyncio.create_subprocess_exec(
            "tk",
            "loop",
            *command,
            cwd=self.base,
            env=self.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        return Terminal(process)

    async def f5(self) -> str:
        editor = DapClient()
        await editor.connect(self.port)
        await editor.attach({str(self.program): [3]})
        thread, frame = await editor.stopped()
        word = await editor.evaluate("word", frame)
        await editor.finish(thread)
        return word


@pytest.fixture
async def here() -> AsyncIterator[Here]:
    with tempfile.TemporaryDirectory(prefix=short_name("l")) as directory:
        yield Here(Path(directory).resolve())


@pytest.mark.parametrize(
    "command",
    [
        ("python", "-m", "debugpy", "--wait-for-client", "2.py"),
        ("python", "2.py"),
    ],
)
async def test_every_f5_gets_a_fresh_debuggee(here: Here, command: tuple[str, ...]) -> None:
    here.program.write_text(SOURCE)
    terminal = await here.loop(*command)
    try:
        await terminal.line(r"run 1 .* armed")
        assert await here.f5() == "'WORD'"
        await terminal.line("says WORD")
        await terminal.line(r"run 1 .* ended: exit code 3")
        here.program.write_text(SOURCE.replace("WORD", "edited"))
        assert await here.f5() == "'edited'"
        await terminal.line(r"run 3 .* armed")
        await terminal.quit()
    finally:
        await terminal.close()


async def test_step_into_an_import_never_stops_in_tks_own_code(here: Here) -> None:
    here.program.write_text("import colorsys\nimport mine\nprint(colorsys, mine)\n")
    (here.base / "mine.py").write_text("word = 1\n")
    terminal = await here.loop("python", "2.py")
    try:
        await terminal.line("armed")
        editor = DapClient()
        await editor.connect(here.port)
        await editor.attach({str(here.program): [1]})
        thread, _ = await editor.stopped()
        places = []
        for _ in range(2):
            await editor.request("stepIn", threadId=thread)
            await editor.stopped()
            trace = await editor.request("stackTrace", threadId=thread)
            places.append(
                [(Path(one["source"]["path"]).name, one["line"]) for one in trace["stackFrames"]]
            )
        assert places == [[("2.py", 2)], [("mine.py", 1), ("2.py", 2)]]
        await editor.finish(thread)
        await terminal.quit()
    finally:
        await terminal.close()


@pytest.mark.parametrize("option", ["--reload", "--all-pods"])
async def test_what_only_a_session_can_do_is_refused(here: Here, option: str) -> None:
    here.program.write_text(SOURCE)
    terminal = await here.loop(option, "python", "2.py")
    try:
        await terminal.line(f"{option} needs a session")
        assert await terminal.ended() == int(UsageError.exit_code)
    finally:
        await terminal.close()


async def test_the_port_that_is_typed_wins_and_an_unused_option_is_told(here: Here) -> None:
    here.program.write_text(SOURCE)
    port, commands_own = here.port, free_port()
    del here.env["TK_DEBUG_PORT"]
    words = ("python", "-m", "debugpy", "--listen", str(commands_own), "2.py")
    terminal = await here.loop("--port", str(port), *words)
    try:
        await terminal.line("armed")
        assert await here.f5() == "'WORD'"
    finally:
        await terminal.close()
    terminal = await here.loop("--post-mortem", "sh", "-c", "sleep 600")
    try:
        await terminal.line("--post-mortem is for a Python program, or for ranks: not used here")
    finally:
        await terminal.close()


async def test_ranks_are_kept_as_in_a_session(here: Here) -> None:
    here.program.write_text("word = 1\n1 / 0\n")
    launch = "#!/bin/sh\nRANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 exec python 2.py\n"
    (here.base / "torchrun").write_text(launch)
    (here.base / "torchrun").chmod(0o755)
    terminal = await here.loop("--post-mortem", str(here.base / "torchrun"))
    try:
        await terminal.line("armed")
        editor = DapClient()
        await editor.connect(here.port)
        await editor.attach({str(here.program): [1]})
        await editor.stopped()
        await editor.close()
        await terminal.line("kept at ZeroDivisionError")
    finally:
        await terminal.close()


async def test_a_closed_terminal_leaves_nothing(here: Here) -> None:
    here.program.write_text(SOURCE)
    terminal = await here.loop("python", "2.py")
    try:
        match = await terminal.line(r"starting \(pid (\d+)")
        await terminal.line("armed")
        os.kill(terminal.process.pid, signal.SIGHUP)
        await terminal.ended()
        with pytest.raises(ProcessLookupError):
            os.kill(int(match[1]), 0)
        with pytest.raises(OSError):
            await DapClient().connect(here.port)
    finally:
        await terminal.close()


async def test_outside_of_a_job_it_says_that_it_runs_here(here: Here) -> None:
    """Somebody is in the wrong directory: nothing of theirs is on the cluster."""
    here.program.write_text(SOURCE)
    del here.env["SLURM_JOB_ID"]
    terminal = await here.loop("python", "2.py")
    try:
        await terminal.line(r"no cluster is configured here .*: running on this machine")
        await terminal.line("armed")
        assert await terminal.quit() == 0
    finally:
        await terminal.close()
