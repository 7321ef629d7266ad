"""The heart of each demo: a loop, F5, an edit, F5, a cut while stopped, and on."""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod

from tunnelkit.demo import leftovers
from tunnelkit.demo.editor import DemoEditor, Stop, find_line
from tunnelkit.demo.places import Places
from tunnelkit.demo.programs import Failed, Tk
from tunnelkit.demo.timeline import Timeline
from tunnelkit.demo.watch import watching
from tunnelkit.errors import TimeoutExpired
from tunnelkit.lab.processes import ProcessId
from tunnelkit.session.runtime.status import JobInfo, SessionStatus

_LOOP = ("loop", "python", "-m", "debugpy", "--wait-for-client", "train.py")
_BREAKPOINT = 'print(f"epoch'
_WRONG, _RIGHT = "value + RATE * slope", "value - RATE * slope"
_STEPS = 3
_ARMED_S = 60.0
_LINK_S = 60.0


class DebugStory(ABC):
    """One run of the demo. `play`, then `end`; if either fails, the caller ends what is left.

    node: the node's name, once known. program: what carries the tunnels."""

    node: str
    program = "ssh"

    def __init__(self, places: Places, tk: Tk, show: Timeline) -> None:
        self._places = places
        self._tk = tk
        self._show = show
        self._remote_root = ""
        self._daemon_pid = 0
        self._run = 0
        self.files = 0
        self._breakpoint = find_line(places.program, _BREAKPOINT)
        self._seen: set[ProcessId] = set()

    @abstractmethod
    async def play(self) -> None:
        """From nothing to a program that has ended well.

        Raises TunnelkitError, OSError, TimeoutError.
        """

    @abstractmethod
    async def end(self) -> None:
        """Take everything down, and prove that it is gone."""

    @abstractmethod
    async def tell_where(self, editor: DemoEditor) -> None:
        """Show where the stopped program is, as it sees it itself."""

    async def debug(self) -> None:
        """The loop, two F5 with an edit between them, and a cut."""
        async with self._tk.running(*_LOOP, output=self._places.loop_output) as loop:
            await self._loop_armed(loop)
            await self._first_f5()
            self._edit()
            await self._second_f5()

    async def up(self, *words: str) -> JobInfo | None:
        """`tk up`; the session's job. `files` is then the number of mirrored files."""
        self._show.step(f"$ tk up {' '.join(words)}")
        status: SessionStatus = json.loads(await self._tk.run("up", *words, "--json"))
        mirror = status["mirror"]
        assert mirror is not None
        self._remote_root, self._daemon_pid = mirror["remote"], int(status["pid"])
        self.files = mirror["files"]
        return status["job"]

    async def lab_down(self) -> None:
        """`tk lab down`, and the proof that nothing is left."""
        self.see()
        self._show.step("$ tk lab down")
        await self._tk.run("lab", "down")
        left = await asyncio.to_thread(leftovers.wait_none, self._places, self._seen)
        if left:
            raise Failed("the demo left something behind", cause="; ".join(left))
        self._show.done(
            f"All {len(self._seen)} processes of the demo have ended; nothing is left of it."
        )

    # -- the way to a debuggee ---------------------------------------------

    async def _loop_armed(self, loop: asyncio.subprocess.Process) -> None:
        self._show.step(f"$ tk {' '.join(_LOOP)}", "in a second terminal")
        deadline = time.monotonic() + _ARMED_S
        while "armed" not in self._loop_output():
            if loop.returncode is not None:
                raise Failed("tk loop ended at once", log=self._loop_output())
            if time.monotonic() > deadline:
                raise TimeoutExpired(f"no debuggee was armed within {_ARMED_S:.0f} s")
            await asyncio.sleep(0.02)
        port = f"127.0.0.1:{self._places.port}"
        self._show.done(
            f"train.py waits on {self.node} for an F5 at {port}; each F5 gets a fresh run."
        )

    def _loop_output(self) -> str:
        return self._places.loop_output.read_text(errors="replace")

    # -- F5 ------------------------------------------------------------------

    async def _first_f5(self) -> None:
        editor = self._editor()
        try:
            stop = await self._f5(editor, "VS Code first runs: tk ready --sync")
            await self.tell_where(editor)
            before, after = await self._losses(editor)
            self.require(after > before, "the sample's loss was to grow", f"{before} to {after}")
            self._show.detail(f"loss = {after:.3g}, and it was {before:.3g}: it grows. A bug!")
            self.require(stop.line == self._breakpoint, "it stopped elsewhere", str(stop))
        finally:
            await editor.close()

    def _edit(self) -> None:
        program = self._places.program
        line = find_line(program, _WRONG)
        self._show.step(f"edit {program.name}:{line}", "here, on the laptop; then save")
        program.write_text(program.read_text().replace(_WRONG, _RIGHT))
        self._show.done(f"{_WRONG}  ->  {_RIGHT}")

    async def _second_f5(self) -> None:
        editor = self._editor()
        try:
            await self._f5(editor, "at once after the save: tk ready --sync proves the new file")
            before, after = await self._losses(editor)
            self.require(after < before, "the node ran the old code", f"{before} to {after}")
            self._show.detail(f"loss = {after:.3g}, down from {before:.3g}: this is the new code.")
            pid = await editor.text("os.getpid()")
            await self._cut()
            await self._step_on(editor, pid)
            await self._finish(editor)
        finally:
            await editor.close()

    async def _f5(self, editor: DemoEditor, remark: str) -> Stop:
        self._show.step("F5", remark)
        ready = json.loads(await self._tk.run("ready", "--sync", "--json"))
        self._run = int(ready["generation"])
        pressed = time.monotonic()
        stop = await editor.attach(self._breakpoint)
        took_ms = (time.monotonic() - pressed) * 1000
        self._show.done(
            f"Run {self._run} stopped at the breakpoint, {took_ms:.0f} ms after the attach:"
        )
        self._show.detail(f"{stop}  {stop.text}", "cyan")
        return stop

    async def _losses(self, editor: DemoEditor) -> tuple[float, float]:
        """An untrained model's loss, and the loss after the first epoch."""
        return float(await editor.text("Line().loss(points)")), float(await editor.text("loss"))

    # -- the cut -------------------------------------------------------------

    async def _cut(self) -> None:
        self.see()
        session = self._places.session()
        assert session is not None
        victims = leftovers.tunnels(self._daemon_pid, self.program)
        self.require(bool(victims), f"the session has no {self.program} to cut", None)
        pids = " ".join(str(process.pid) for process in victims)
        self._show.step(
            f"$ kill -9 {pids}", f"every {self.program} between here and {self.node}, while stopped"
        )
        async with watching(session) as watch:
            leftovers.kill(victims)
            await watch.until("reconnecting", _LINK_S)
            self._show.done("The session says: reconnecting")
            await watch.until("ready", _LINK_S)
        self._show.done("The session says: ready. The editor has noticed nothing of it.")

    async def _step_on(self, editor: DemoEditor, pid: str) -> None:
        self._show.step(f"F10, {_STEPS} times", "next, in the same debug session")
        stop = [await editor.next() for _ in range(_STEPS)][-1]
        now = await editor.text("os.getpid()")
        self.require(now == pid, "another process answers", f"pid {now}, it was {pid}")
        epoch = await editor.text("epoch")
        self._show.done(f"epoch = {epoch}, still process {pid} on {self.node}; now at:")
        self._show.detail(f"{stop}  {stop.text}", "cyan")

    async def _finish(self, editor: DemoEditor) -> None:
        self._show.step("F5", "continue, without the breakpoint")
        await editor.run_to_end()
        code = await self._exit_code()
        self.require(code == 0, "train.py ended badly", f"exit code {code}")
        self._show.done(f"train.py ended with exit code {code}; its terminal shows:")
        self._show.detail(self._last_printed(), "cyan")

    async def _exit_code(self) -> int | None:
        """The exit status of the run, once the loop knows it: a moment after the editor does."""
        deadline = time.monotonic() + _ARMED_S
        while time.monotonic() < deadline:
            ended = (await self._tk.status())["loops"][0]["last_end"]
            if ended.get("generation") == self._run:
                code = ended.get("code")
                return code if isinstance(code, int) else None
        raise TimeoutExpired(f"run {self._run} of train.py did not end")

    def _last_printed(self) -> str:
        return next(line for line in self._loop_output().splitlines() if line.startswith("y = "))

    # -- inside --------------------------------------------------------------

    def _editor(self) -> DemoEditor:
        return DemoEditor(self._places.program, self._remote_root, self._places.port)

    def see(self) -> None:
        """Remember the demo's processes, so that their end can be checked."""
        self._seen |= leftovers.processes(self._places)

    def require(self, right: bool, what: str, cause: str | None) -> None:
        """Raise Failed, with `what` and `cause`, unless all is right."""
        if not right:
            raise Failed(what, cause=cause)
