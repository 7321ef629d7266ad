"""Starts a loop's generations: from a fork server where that can be, else as new processes."""

import socket
from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from tunnelkit.agent.debug.fork_server_client import (
    ForkServer,
    ServerEnded,
    Unfit,
    agent_path,
    is_possible,
)
from tunnelkit.agent.processes.exec_channel import command_of
from tunnelkit.agent.processes.loop_run import LoopRun, OnOutput, spawn
from tunnelkit.agent.processes.table import ProcessTable
from tunnelkit.debuggee import postmortem
from tunnelkit.debuggee.debugpy_launcher import START

if TYPE_CHECKING:
    from tunnelkit.messages.agent_calls import LoopSpec
    from tunnelkit.messages.loop_events import LoopEvent

#: Stands in the command and environment for the dial-in port.
PORT_MARK = "@TK_DIALIN_PORT@"
#: What has changed again each time it has just been imported is changed by its import.
_TRIES = 3


class RunStarter:
    """Makes one run after the other. `close` it at the end.

    spec: as for Loop. tell hears what becomes of the fork server.
    """

    def __init__(
        self,
        spec: "LoopSpec",
        table: ProcessTable,
        on_output: OnOutput,
        tell: "Callable[[LoopEvent], None]",
    ) -> None:
        self._spec = spec
        self._table = table
        self._on_output = on_output
        self._tell = tell
        self._server: Optional[ForkServer] = None
        self._preload = [str(name) for name in spec.get("preload") or []]
        wanted = bool(spec.get("interpreter")) and bool(spec.get("standby") or self._preload)
        self._forks = wanted and is_possible(table)

    @property
    def can_stand_by(self) -> bool:
        """True if a run may be made while another one lives: its program waits for its turn."""
        return self._forks and bool(self._spec.get("standby"))

    async def make(self, number: int, port: int) -> LoopRun:
        """The run of this generation. Raises OSError, ValueError or ServerEnded."""
        tries = 0
        while self._forks:
            try:
                return await self._fork(number, port)
            except Unfit as error:
                await self.close()
                tries += 1
                if error.stale and tries < _TRIES:
                    self._tell({"event": "stale", "why": error.why})
                else:
                    self._forks = False
                    self._tell({"event": "no-standby", "why": error.why})
        return self._spawn(port, number)

    async def stale(self) -> Optional[str]:
        """The file that changed on the disk since the fork server imported it, if any has.

        Then the server is gone, and what it forked should not be used.
        """
        # Asked while it imports, it would take the answer that its start waits for.
        if self._server is None or not self._server.is_ready or not self._preload:
            return None
        try:
            why = await self._server.changed()
        except ServerEnded:
            why = "the fork server has ended"
        if why is not None:
            self._tell({"event": "stale", "why": why})
            await self.close()
        return why

    async def close(self) -> None:
        """End the fork server, if there is one."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _fork(self, number: int, port: int) -> LoopRun:
        words = [str(word).replace(PORT_MARK, str(port)) for word in self._spec["words"]]
        for fresh in (False, True):
            if self._server is None or not self._server.is_alive:
                await self._start_server(port)
                fresh = True
            assert self._server is not None
            try:
                return await self._server.fork(number, words)
            except ServerEnded:
                await self.close()
                if fresh:
                    raise
        raise AssertionError("not reached")

    async def _start_server(self, port: int) -> None:
        await self.close()
        _, cwd, env = self._command(port)
        if self._preload:
            self._tell({"event": "preloading", "modules": self._preload})
        self._server = server = ForkServer(
            self._table,
            self._spec["interpreter"],
            cwd=cwd,
            env=env,
            preload=self._preload,
            on_output=self._on_output,
        )
        try:
            ready = await server.start()
        except BaseException:
            await self.close()
            raise
        self._tell({"event": "fork-server", "pid": server.pid, **ready})

    def _command(self, port: int) -> "tuple[List[str], str, Dict[str, str]]":
        argv, cwd, env = command_of(self._spec)
        argv = [word.replace(PORT_MARK, str(port)) for word in argv]
        env = {key: value.replace(PORT_MARK, str(port)) for key, value in env.items()}
        # Output through a pipe would be held back until a buffer is full.
        env.setdefault("PYTHONUNBUFFERED", "1")
        return argv, cwd, env

    def _spawn(self, port: int, number: int) -> LoopRun:
        argv, cwd, env = self._command(port)
        if self._spec.get("interpreter"):
            words = [str(word).replace(PORT_MARK, str(port)) for word in self._spec["words"]]
            argv = [*self._spec["interpreter"], "-c", START, agent_path(), *words]
            if self._spec.get("post_mortem"):
                return self._spawn_heard(number, argv, cwd, env)
        return spawn(self._table, number, argv, cwd=cwd, env=env)

    def _spawn_heard(self, number: int, argv: List[str], cwd: str, env: Dict[str, str]) -> LoopRun:
        """A run that can tell us something, as forked ones do."""
        ours, theirs = socket.socketpair()
        env = {**env, postmortem.CONTROL_VARIABLE: str(theirs.fileno())}
        try:
            with theirs:
                pass_fds = [theirs.fileno()]
                run = spawn(self._table, number, argv, cwd=cwd, env=env, pass_fds=pass_fds)
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        run.listen_on(ours)
        return run
