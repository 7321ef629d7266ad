"""The tutorial, docs/tutorial.md: its commands, as they stand there, on a lab of its own.

With TK_SCREENSHOTS=docs/images the pictures of its terminals are made of what this run prints
(`scripts/docs pictures`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.lab_rig import needs_lab
from tests.support.places import short_dir
from tests.support.ports import free_port
from tests.support.terminal import PATIENCE_S, Terminal
from tunnelkit.demo.editor import DemoEditor

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorial.md"
_STEP = re.compile(
    r'^```sh title="(?P<title>[^"]+)"\n(?P<block>.*?)^```$'
    r"|^<!-- test: (?P<act>.+?) -->$"
    r"|^!\[[^\]]*\]\((?P<picture>images/tutorial-[a-z]+\.svg)\)$",
    re.MULTILINE | re.DOTALL,
)
_DONE = "tutorial-block-done"


@dataclass(frozen=True)
class Step:
    """One thing that the reader does: a `kind` of step, and what it is about."""

    kind: str
    text: str


def steps() -> list[Step]:
    """All that the page has its reader do, in its order."""
    found = []
    for one in _STEP.finditer(PAGE.read_text()):
        if one["title"]:
            found.append(Step(one["title"], one["block"]))
        elif one["act"]:
            found.append(Step("act", one["act"]))
        else:
            found.append(Step("picture", one["picture"]))
    return found


class Reader:
    """A reader with two terminals and an editor."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.home.mkdir()
        self._project = self.home / "tk-tutorial"
        self._port = free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TK_")}
        self.env = {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TK_CONFIG_DIR": str(base / "config"),
            "TK_STATE_DIR": str(base / "s"),
            "TK_CACHE_DIR": str(base / "cache"),
            "TK_RUNTIME_DIR": str(base / "r"),
            "TK_LAB_DIR": str(base / "lab"),
            "TK_DEBUG_PORT": str(self._port),
            "PYTHONUNBUFFERED": "1",
        }
        for name in ("TK_TEST_RUN", "TK_LAB_TAG"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        self.shown: list[str] = []
        self._first: asyncio.subprocess.Process | None = None
        self._second: Terminal | None = None
        self._editor: DemoEditor | None = None

    async def do(self, step: Step) -> None:
        """Do one step of the page."""
        if step.kind == "First terminal":
            self.shown = []
            await self._type(step.text)
        elif step.kind == "Second terminal":
            await self._type_second(step.text)
        elif step.kind == "act":
            await self._act(shlex.split(step.text))

    async def _type(self, block: str) -> None:
        """Type a block into the first terminal, command by command; each has to succeed."""
        if self._first is None:
            self._first = await self._bash("-s")
        assert self._first.stdin and self._first.stdout
        for command in _commands(block):
            self._first.stdin.write(f"{{\n{command}\n}} </dev/null\necho {_DONE} $?\n".encode())
            output = ""
            async with asyncio.timeout(PATIENCE_S):
                while not (done := re.fullmatch(rf"{_DONE} (\d+)\n", line := await self._line())):
                    output += line
            assert done[1] == "0", f"$ {command}\n{output}"
            self.shown += [f"$ {command}", *output.splitlines()]

    async def _line(self) -> str:
        assert self._first and self._first.stdout
        line = (await self._first.stdout.readline()).decode()
        assert line, "the shell of the first terminal has ended"
        return line

    async def _type_second(self, block: str) -> None:
        self._second = Terminal(await self._bash("-c", block))
        await self._second.line("armed")
        commands = [f"$ {one}" for one in _commands(block)]
        self.shown = [*commands, *self._second.text.splitlines()]

    async def _bash(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "bash",
            *words,
            cwd=self.home,
            env=self.env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    # -- the editor ---------------------------------------------------------

    async def _act(self, words: list[str]) -> None:
        match words:
            case ["f5", place]:
                await self._f5(place)
            case ["continue"]:
                await self._continue()
            case ["next"]:
                await self._step_over()
            case ["stop"]:
                await self._stop()
            case ["finish"]:
                await self._finish()
            case ["edit", name, old, new]:
                path = self._project / name
                assert path.read_text().count(old) == 1
                path.write_text(path.read_text().replace(old, new))
            case _:
                raise AssertionError(f"the page has its reader do {words}")

    async def _f5(self, place: str) -> None:
        """The preLaunchTask, then the attach; the loss at the breakpoint is as the page says."""
        name, line = place.split(":")
        grows = "x + RATE" in (self._project / name).read_text()
        await self._tk("ready", "--sync")
        remote = json.loads(await self._tk("status", "--json"))["mirror"]["remote"]
        self._editor = DemoEditor(self._project / name, remote, self._port)
        stop = await self._editor.attach(int(line))
        assert stop.line == int(line)
        assert (float(await self._editor.text("(step(0.0) - 3) ** 2")) > 9.0) == grows

    async def _continue(self) -> None:
        assert self._editor is not None
        assert await self._editor.text("epoch") == "0"
        while await self._editor.text("epoch") == "0":  # F10 up to the breakpoint
            await self._editor.next()

    async def _step_over(self) -> None:
        assert self._editor is not None
        before = await self._editor.text("os.getpid()")
        await self._editor.next()
        assert await self._editor.text("os.getpid()") == before

    async def _stop(self) -> None:
        assert self._editor and self._second
        self._second.skip()
        await self._editor.close()
        await self._second.line("armed")

    async def _finish(self) -> None:
        assert self._editor and self._second
        await self._editor.run_to_end()
        await self._second.line("done on ")
        await self._editor.close()

    async def _tk(self, *words: str) -> str:
        """Run what the editor runs, in the project."""
        lab = 'eval "$(tk lab env)"; exec tk "$@"'
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", lab, "tk", *words),
            cwd=self._project,
            env=self.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode == 0, words
        return out.decode()

    def as_on_a_laptop(self) -> str:
        """What the last terminal shows, with the directories and the port that a reader has."""
        text = "\n".join(self.shown).replace(str(self.home), "/home/me")
        text = text.replace(str(self.home.parent), "/home/me/.tk")
        return text.replace(str(self._port), "40056")

    async def close(self) -> None:
        """End all that is left."""
        if self._editor is not None:
            await self._editor.close()
        if self._second is not None:
            await self._second.close()
        if self._first is not None:
            assert self._first.stdin
            self._first.stdin.close()
            await self._first.wait()


def _commands(block: str) -> list[str]:
    """The commands of a block; a here-document belongs to its command."""
    found: list[str] = []
    ends = ""
    for line in block.splitlines():
        if ends:
            found[-1] += f"\n{line}"
            ends = "" if line == ends else ends
        elif line:
            found.append(line)
            here = re.search(r"<<'(\w+)'", line)
            ends = here[1] if here else ""
    return found


@asynccontextmanager
async def reading() -> AsyncIterator[Reader]:
    """A reader in fresh directories; no process of his is left afterwards."""
    base = short_dir("t")
    reader = Reader(base)

    def left() -> list[processes.Seen]:
        tag = f"HOME={reader.home}"
        return [one for one in processes.look().values() if tag in one.environ]

    try:
        try:
            yield reader
        finally:
            await reader.close()
        assert not (base / "lab").exists()
        processes.until(lambda: not left(), "the tutorial left processes behind")
    finally:
        processes.kill(left())
        shutil.rmtree(base, ignore_errors=True)


@needs_lab
@pytest.mark.logins(2)
async def test_the_tutorial_works_as_it_stands() -> None:
    async with reading() as reader:
        for step in steps():
            await reader.do(step)
            if step.kind == "picture" and (folder := os.environ.get("TK_SCREENSHOTS")):
                from scripts.docslib.pictures import terminal

                terminal(reader.as_on_a_laptop(), Path(folder) / Path(step.text).name)


def test_the_page_has_all_parts() -> None:
    kinds = [step.kind for step in steps()]
    assert kinds.count("Once") == 1, "only the installation is not run"
    assert kinds.count("act") >= 7 and kinds.count("picture") >= 4
    assert PAGE.read_text().count("```sh") == sum(kind in _TERMINALS for kind in kinds)


_TERMINALS = ("Once", "First terminal", "Second terminal")
