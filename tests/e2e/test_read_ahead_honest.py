"""With read-ahead an editor hears what it hears without, and the program is asked as often.

On this machine, by `tk loop` without a session.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from tests.e2e.test_read_ahead import on_screen
from tests.support import recorded_session
from tests.support.places import short_name
from tests.support.ports import free_port
from tests.support.recorded_session import Replay, differences
from tests.support.terminal import PATIENCE_S
from tests.support.tkrig import Project, Terminal, line_of
from tunnelkit.demo.dap_client import DapClient

PROGRAM = textwrap.dedent(
    """\
    import threading
    import time
    from collections import Counter

    asked = Counter()
    lock, held = threading.Lock(), threading.Event()


    class Shown:
        def __repr__(self):
            asked[type(self).__name__] += 1
            return self.shown()


    class Counts(Shown):
        def shown(self):
            return f"asked {asked['Counts']}"


    class Raises(Shown):
        def shown(self):
            raise ValueError("no")


    class Prints(Shown):
        def shown(self):
            print("shown", asked["Prints"], flush=True)
            return "printed"


    class Slow(Shown):
        def shown(self):
            time.sleep(0.2)
            return "slow"


    class Waits(Shown):
        def shown(self):
            with lock:
                return "waited"


    def hold():
        with lock:
            held.set()
            for _ in range(20):
                time.sleep(0.01)


    def look(thing):
        count, name = len(asked), "a" * 300
        return thing


    for thing in (1, Counts(), Counts(), Raises(), Prints(), Slow(), Slow(), Counts()):
        look(thing)
    threading.Thread(target=hold).start()
    held.wait()
    look(Waits())
    print("asked", sorted(asked.items()), flush=True)
    """
)
STOP = line_of(PROGRAM, "return thing")


class Here:
    """A directory with a loop on a program; as much of a Project as a replay needs."""

    def __init__(self, base: Path, port: int, terminal: Terminal) -> None:
        self.dir = base
        self.port = port
        self.terminal = terminal

    def remote(self) -> Path:
        return self.dir


@asynccontextmanager
async def looping(source: str, *, read_ahead: bool) -> AsyncIterator[Here]:
    with tempfile.TemporaryDirectory(prefix=short_name("r")) as directory:
        base, port = Path(directory), free_port()
        (base / "main.py").write_text(source)
        process = await asyncio.create_subprocess_exec(
            *("tk", "loop", "python", "main.py"),
            cwd=base,
            env={
                "HOME": directory,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "TK_CONFIG_DIR": str(base / "config"),
                "TK_STATE_DIR": str(base / "state"),
                "TK_RUNTIME_DIR": directory,
                "TK_DEBUG_PORT": str(port),
                "TK_DEBUG_READ_AHEAD": "true" if read_ahead else "false",
                "SLURM_JOB_ID": "4711",
                "PYDEVD_UNBLOCK_THREADS_ON_VARIABLES_TIMEOUT": "0.5",
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        terminal = Terminal(process)
        try:
            await terminal.line(r"run 1 .*armed")
            yield Here(base, port, terminal)
            await terminal.quit()
        finally:
            await terminal.close()


async def looks(here: Here) -> list[str]:
    """One run of the program: the locals at each stop, and how often it was asked for them."""
    editor = DapClient()
    await editor.connect(here.port)
    await editor.attach({str(here.dir / "main.py"): [STOP]}, timeout_s=PATIENCE_S)
    seen: list[object] = []
    for _ in range(9):
        thread = int((await editor.wait_event("stopped"))["threadId"])
        frame, found = await on_screen(editor, thread)
        hover = {"frameId": frame["id"], "context": "hover"}
        for name in ("count", "name"):
            seen.append(await editor.request("evaluate", expression=name, **hover))
        seen.append([frame["line"], {name: one["value"] for name, one in found.items()}])
        await editor.request("continue", threadId=thread)
    await editor.wait_event("terminated")
    await editor.close()
    seen.append((await here.terminal.line("^asked .*"))[0])
    here.terminal.skip()
    return [re.sub("0x[0-9a-f]+", "0x", str(one)) for one in seen]


async def test_a_program_that_minds_being_shown_is_shown_as_often() -> None:
    async with looping(PROGRAM, read_ahead=False) as here:
        without = await looks(here)
    async with looping(PROGRAM, read_ahead=True) as here:
        for _ in range(2):
            assert await looks(here) == without
    assert "('Counts', 3)" in without[-1]


async def test_vs_code_hears_the_same() -> None:
    heard: list[list[bytes]] = []
    for read_ahead in (False, True):
        async with looping(recorded_session.PROGRAM, read_ahead=read_ahead) as here:
            for _ in range(2 if read_ahead else 1):
                replay = Replay()
                await replay.run(cast(Project, here))
                # Each run has a directory of its own.
                heard.append([one.replace(str(here.dir).encode(), b"/dir") for one in replay.heard])
    without, first, second = heard
    for one in (first, second):
        different = differences(one, without)
        assert not different, "\n".join(different)
