"""The agent's end of a fork server (debuggee/fork_server.py), which starts debuggees quickly."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Dict, Optional, Sequence

from tunnelkit.agent.processes.loop_run import LoopRun, OnOutput, spawn
from tunnelkit.agent.processes.table import Exit, ProcessTable
from tunnelkit.debuggee.fork_server import SERVE
from tunnelkit.mux.loop_records import STDERR, STDOUT
from tunnelkit.mux.tasks import cancel_all, first_of

if TYPE_CHECKING:
    from tunnelkit.messages.loop_events import Imports

_GRACE_S = 2.0


class Unfit(Exception):
    """The server can't be forked: `why`, and whether a new server could (`stale`)."""

    def __init__(self, why: str, stale: bool) -> None:
        super().__init__(why)
        self.why = why
        self.stale = stale


class ServerEnded(Exception):
    """The server's process ended; `how`."""

    def __init__(self, how: Exit) -> None:
        super().__init__(f"the fork server has ended: {_in_words(how)}")
        self.how = how


class PreloadFailed(ValueError):
    """A module to preload can't be imported."""


class ForkServer:
    """One fork server. `start` it, `fork` runs, `close` it; forks live on without it.

    interpreter: argv of the Python. words: debugpy's arguments for a debuggee. on_output
    gets what imports write.
    """

    def __init__(
        self,
        table: ProcessTable,
        interpreter: Sequence[str],
        *,
        cwd: str,
        env: Dict[str, str],
        preload: Sequence[str],
        on_output: OnOutput,
    ) -> None:
        self._table = table
        self._interpreter = list(interpreter)
        self._cwd = cwd
        self._env = env
        self._preload = list(preload)
        self._on_output = on_output
        self._run: Optional[LoopRun] = None
        self._sock: Optional[socket.socket] = None
        self._text = b""
        self._asked = 0
        self._asking = asyncio.Lock()
        self._imported = False

    @property
    def pid(self) -> Optional[int]:
        """The server's pid while it lives."""
        return self._run.process.pid if self._run is not None else None

    @property
    def is_alive(self) -> bool:
        """True from `start` until its process has ended."""
        return self._run is not None and not self._run.process.exited.done()

    @property
    def is_ready(self) -> bool:
        """True once it has imported everything, while it lives: it can be asked."""
        return self._imported and self.is_alive

    async def start(self) -> "Imports":
        """Start it and wait for its imports; what it tells of them.

        Raises OSError if the interpreter can't be started, PreloadFailed if an import fails,
        ServerEnded if anything else does.
        """
        ours, theirs = socket.socketpair()
        argv = [*self._interpreter, "-c", SERVE, agent_path()]
        argv += [str(theirs.fileno()), ",".join(self._preload)]
        try:
            with theirs:
                pass_fds = [theirs.fileno()]
                run = spawn(self._table, 0, argv, cwd=self._cwd, env=self._env, pass_fds=pass_fds)
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        self._sock = ours
        self._run = run
        self._run.begin(self._on_output, lambda answer: None)
        return await self._ready()

    async def _ready(self) -> "Imports":
        importing = ""
        while True:
            try:
                answer = await self._next_answer()
            except ServerEnded as error:
                if importing:
                    why = f"its import ended the interpreter: {_in_words(error.how)}"
                    raise PreloadFailed(f"--preload {importing}: {why}") from None
                raise
            if "failed" in answer:
                raise PreloadFailed(f"--preload {importing}: {answer['failed']}")
            ready = answer.get("ready")
            if isinstance(ready, dict):
                self._imported = True
                return {"imports": ready["imports"], "rss_bytes": ready["rss_bytes"]}
            importing = str(answer["importing"])

    async def fork(self, number: int, words: Sequence[str]) -> LoopRun:
        """A debuggee, dialling in and waiting for its turn. Raises Unfit, ServerEnded."""
        async with self._asking:
            if self._run is None:
                # Found to be out of date while this waited.
                raise Unfit("the fork server has been closed", stale=True)
            tag = self._table.new_tag()
            ours, theirs = socket.socketpair()
            out_read, out_write = os.pipe()
            err_read, err_write = os.pipe()
            pid = 0
            try:
                request = {
                    "words": list(words),
                    "cwd": self._cwd,
                    "env": dict(self._env, TK_PROCESS=tag),
                    "tag": [self._run.process.tag, tag],
                }
                descriptors = [out_write, err_write, theirs.fileno()]
                asked = await self._ask(descriptors, fork=request)
                pid = int(str((await self._answer(asked))["pid"]))
            finally:
                theirs.close()
                os.close(out_write)
                os.close(err_write)
                if not pid:
                    ours.close()
                    os.close(out_read)
                    os.close(err_read)
            process = self._table.adopt(pid, tag)
            ours.setblocking(False)
            with contextlib.suppress(OSError):
                ours.send(b"a")
            return LoopRun(number, process, {STDOUT: out_read, STDERR: err_read}, ours)

    async def changed(self) -> Optional[str]:
        """The file that changed on the disk since the server imported it; None if none has."""
        async with self._asking:
            why = (await self._answer(await self._ask(check={})))["changed"]
            return None if why is None else str(why)

    async def close(self) -> None:
        """End the server."""
        run, self._run = self._run, None
        sock, self._sock = self._sock, None
        if run is None:
            return
        await self._table.end(run.process, _GRACE_S)
        await run.drain(0.5)
        await run.close()
        if sock is not None:
            sock.close()

    async def _ask(self, descriptors: Sequence[int] = (), **message: object) -> int:
        """Send a question; its number. Who asks may be cancelled before the answer comes."""
        assert self._sock is not None
        self._asked += 1
        message["id"] = self._asked
        data = json.dumps(message).encode() + b"\n"
        packed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)] if descriptors else []
        try:
            sent = self._sock.sendmsg([data], ancillary)
            await asyncio.get_running_loop().sock_sendall(self._sock, data[sent:])
        except OSError:
            pass  # it has ended: waiting for the answer tells how
        return self._asked

    async def _answer(self, asked: int) -> Dict[str, object]:
        answer = await self._next_answer()
        while answer.get("id", 0) != asked:
            answer = await self._next_answer()
        if "unfit" in answer:
            raise Unfit(str(answer["unfit"]), bool(answer["stale"]))
        return answer

    async def _next_answer(self) -> Dict[str, object]:
        assert self._run is not None
        line = asyncio.ensure_future(self._line())
        try:
            await first_of(line, self._run.process.exited)
            answer = line.result() if line.done() else b""
        finally:
            await cancel_all(line)
        if not answer:
            how = await asyncio.shield(self._run.process.exited)
            await self._run.drain(0.5)
            raise ServerEnded(how)
        return dict(json.loads(answer))

    async def _line(self) -> bytes:
        assert self._sock is not None
        while b"\n" not in self._text:
            try:
                data = await asyncio.get_running_loop().sock_recv(self._sock, 4096)
            except OSError:
                return b""
            if not data:
                return b""
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        return line


def _in_words(how: Exit) -> str:
    return f"signal {how.signal}" if how.signal else f"exit code {how.code}"


def agent_path() -> str:
    """The place of this code: the agent's zip, or the directory of its sources."""
    import tunnelkit

    return os.path.dirname(os.path.dirname(os.path.abspath(str(tunnelkit.__file__))))


def is_possible(table: ProcessTable) -> bool:
    """A fork server needs the debuggees that it forks to become the agent's children."""
    return table.reaps_orphans
