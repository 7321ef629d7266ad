"""The restart loop: one debuggee after the other, the next one armed when the last is gone.

The loop lives in the agent, so it outlives links and sessions. Its states, told
as events in its log:

    starting -> armed -> attached -> ended -> starting ...
    starting -> ended (crashed early) -> waiting (back-off) -> starting ...

Rules of this file: a generation's whole process group and strays are gone before
the next one starts, and every event carries its generation.
"""

import asyncio
import contextlib
import os
import socket
import time
from typing import Any, Callable, Dict, List, Optional

from tunnelkit.agent.dialin import DialIn
from tunnelkit.agent.execs import command_of, start_error
from tunnelkit.agent.looplog import LoopLog
from tunnelkit.agent.processes import Process, ProcessTable
from tunnelkit.mux.fdstream import read_fd
from tunnelkit.mux.records import STDERR, STDOUT
from tunnelkit.mux.waiting import cancel_all, first_of

#: Stands in the command and environment for the dial-in port.
PORT_MARK = "@TK_DIALIN_PORT@"

OnDebuggee = Callable[["Loop", int, socket.socket], None]


class Loop:
    """One restart loop. `run` owns everything of it until `stop`.

    spec: argv, cwd, env as for exec; `debug`: the command dials in and waits for an
    editor; `grace_s`: from TERM to KILL. `shown` (the command as given) and
    `editor_port` (the session's port) are kept for a session that comes later.
    """

    def __init__(
        self, loop_id: int, spec: Dict[str, Any], table: ProcessTable, on_debuggee: OnDebuggee
    ) -> None:
        self.id = loop_id
        self.spec = spec
        self.log = LoopLog()
        self.generation = 0
        self.state = "new"
        self.last_end: Optional[Dict[str, Any]] = None
        self._debug = bool(spec.get("debug"))
        self._grace_s = float(spec.get("grace_s", 2.0))
        self._table = table
        self._on_debuggee = on_debuggee
        self._dialin = DialIn(self._dialled)
        self._process: Optional[Process] = None
        self._failures = 0
        self._attached = False
        self._restart: Optional[str] = None
        self._restart_wanted = asyncio.Event()
        self._stopping = False

    # -- told from outside ------------------------------------------------

    def describe(self) -> Dict[str, Any]:
        """The loop as a JSON object."""
        return {
            "id": self.id,
            "argv": self.spec.get("argv"),
            "shown": self.spec.get("shown"),
            "editor_port": self.spec.get("editor_port"),
            "debug": self._debug,
            "generation": self.generation,
            "state": self.state,
            "pid": self._process.pid if self._process is not None else None,
            "port": self._dialin.port,
            "last_end": self.last_end,
            "refused_peers": self._dialin.refused,
        }

    def attached(self, generation: int, who: str) -> None:
        """An editor is on this generation's debuggee."""
        if generation == self.generation and self.state in ("starting", "armed", "attached"):
            self._attached = True
            self._become("attached", client=who)

    def restart(self, reason: str, generation: Optional[int] = None) -> None:
        """End the running generation (if it is `generation`) and arm the next at once."""
        if generation is None or generation == self.generation:
            self._restart = reason
            self._failures = 0
            self._restart_wanted.set()

    def stop(self) -> None:
        """End the loop; `run` returns once nothing of it is left."""
        self._stopping = True
        self._restart_wanted.set()

    # -- life -------------------------------------------------------------

    async def run(self) -> None:
        """Run generations until `stop`."""
        self._dialin.open()
        try:
            while not self._stopping:
                await self._run_generation()
                if not self._stopping and self._restart is None:
                    await self._back_off()
        finally:
            self._dialin.close()
            if self._process is not None:
                await self._table.end(self._process, self._grace_s)
                self._process = None
            self._become("stopped")
            self.log.close()

    async def _run_generation(self) -> None:
        self.generation += 1
        self._attached = False
        self._restart = None
        self._restart_wanted.clear()
        try:
            outputs = self._spawn()
        except (OSError, ValueError) as error:
            self._note_end({"error": start_error(self.spec, error)}, "not started")
            return
        process = self._process
        assert process is not None
        wanted = asyncio.ensure_future(self._restart_wanted.wait())
        try:
            await first_of(process.exited, wanted)
            by_itself = process.exited.done()
            how = await self._table.end(process, self._grace_s)
            await asyncio.wait(outputs, timeout=0.5)
        finally:
            await cancel_all(wanted, *outputs)
        self._process = None
        self._note_end(how.describe(), self._why(by_itself))

    def _spawn(self) -> "List[asyncio.Task[None]]":
        argv, cwd, env = command_of(self.spec)
        port = str(self._dialin.port)
        argv = [word.replace(PORT_MARK, port) for word in argv]
        env = {key: value.replace(PORT_MARK, port) for key, value in env.items()}
        # Output through a pipe would be held back until a buffer is full.
        env.setdefault("PYTHONUNBUFFERED", "1")
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            with open(os.devnull, "rb") as null:
                self._process = self._table.spawn(
                    argv,
                    cwd=cwd,
                    env=env,
                    stdin=null.fileno(),
                    stdout=out_write,
                    stderr=err_write,
                )
        except BaseException:
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            os.close(out_write)
            os.close(err_write)
        self._become("starting", pid=self._process.pid, port=self._dialin.port)
        return [
            asyncio.ensure_future(self._collect(out_read, STDOUT)),
            asyncio.ensure_future(self._collect(err_read, STDERR)),
        ]

    async def _collect(self, fd: int, kind: int) -> None:
        os.set_blocking(fd, False)
        try:
            with contextlib.suppress(OSError):
                while True:
                    data = await read_fd(fd, 64 * 1024)
                    if not data:
                        return
                    self.log.append(kind, data)
        finally:
            os.close(fd)

    def _dialled(self, sock: socket.socket) -> None:
        if self._process is None or self._stopping:
            sock.close()
            return
        if self.state == "starting":
            self._become("armed", pid=self._process.pid)
        self._on_debuggee(self, self.generation, sock)

    def _why(self, by_itself: bool) -> str:
        if self._stopping:
            return "stopped"
        if not by_itself and self._restart is not None:
            return self._restart
        return "ended"

    def _note_end(self, how: Dict[str, Any], why: str) -> None:
        self.last_end = dict(how, why=why, generation=self.generation)
        early = self._debug or float(how.get("duration_s", 0.0)) < 1.0
        if why in ("ended", "not started") and early and not self._attached:
            self._failures += 1
        else:
            self._failures = 0
        self._become("ended", why=why, **how)

    async def _back_off(self) -> None:
        """After a run that no editor saw: wait, so that a broken command does not spin."""
        if self._failures == 0:
            return
        delay_s = min(10.0, 0.25 * 2 ** min(self._failures, 6))
        self._become("waiting", delay_s=delay_s)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._restart_wanted.wait(), delay_s)

    def _become(self, state: str, **fields: Any) -> None:
        self.state = state
        self.log.event(state, generation=self.generation, time=time.time(), **fields)
