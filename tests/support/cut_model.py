"""The mirror's parts with a link that is cut at any step of theirs: a command on the login host, a
chunk of rsync's, a chunk that goes to the agent.

Nothing here needs a network: commands and rsync's far end run as children, the agent is a real
one. What was under way when the link was cut may be lost, be done without an answer, or be done
late: after what is sent over the next link.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.cut_shell import LATE, LOST, UNANSWERED
from tests.support.mirror_rig import Node, Rig
from tests.support.mirror_sshd import Sshd
from tunnelkit.errors import ConnectionFailed, TimeoutExpired
from tunnelkit.link.base import ByteStream
from tunnelkit.model import Completed
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.remote_command import remote_command
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.files.file_agents import HeldFileAgent

_SHELL = Path(__file__).with_name("cut_shell.py")
_STEP_S = 10.0


class Cut:
    """Counts steps, and cuts the link at one of them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.how = LOST
        self.at = -1
        self.steps = 0
        self.is_up = True
        #: False: the login host alone can be reached
        self.has_node = True
        self.fired = asyncio.Event()
        self._late: list[asyncio.Event] = []
        self._far: list[asyncio.subprocess.Process] = []

    def arm(self, how: str, at: int) -> None:
        """Cut the link at the step `at` from now."""
        self.count_chunks()
        self.how, self.at, self.steps = how, at, 0
        self.fired.clear()

    def check(self) -> None:
        """Raises ConnectionFailed while it is cut."""
        if not self.is_up:
            raise _broken()

    def step(self) -> bool:
        """Count one. Whether the link is cut at it."""
        self.steps += 1
        if self.at != self.steps - 1:
            return False
        self.fire()
        return True

    def count_chunks(self) -> None:
        """Those of the last transfer, which were steps, too."""
        file = self.directory / "chunks"
        with contextlib.suppress(FileNotFoundError):
            count, fired = map(int, file.read_text().split())
            file.unlink()
            self.steps += count
            if fired and self.is_up:
                self.fire()

    def fire(self) -> None:
        self.is_up = False
        self.fired.set()

    def heal(self, *, node: bool = True) -> None:
        """There is a way again; without `node` to the login host alone."""
        self.at = -1
        self.is_up, self.has_node = True, node

    # --- what comes late

    def held(self) -> asyncio.Event:
        """Set once what is late may go on."""
        event = asyncio.Event()
        self._late.append(event)
        return event

    def hold(self, process: asyncio.subprocess.Process) -> None:
        """A far end that stands still until `release`."""
        self._far.append(process)

    async def release(self) -> None:
        """What was late is done now, to its end."""
        for event in self._late:
            event.set()
        self._late.clear()
        for process in self._far:
            os.killpg(process.pid, signal.SIGCONT)
            await process.wait()
        self._far.clear()
        held = self.directory / "held"
        if held.exists():
            for word in held.read_text().split():
                await _resume(int(word))
            held.unlink()

    def end(self) -> None:
        """Leave nothing behind."""
        held = self.directory / "held"
        pids = [int(word) for word in held.read_text().split()] if held.exists() else []
        for pid in [*pids, *(process.pid for process in self._far)]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _broken() -> ConnectionFailed:
    return ConnectionFailed("the link is cut", transient=True)


async def _stopped(pid: int) -> None:
    """Return once a process has stopped itself: a SIGCONT before would be lost."""
    async with asyncio.timeout(_STEP_S):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            await asyncio.sleep(0.005)


async def _resume(pid: int) -> None:
    """Have a process that is not ours go on, and return when it has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        os.killpg(pid, signal.SIGCONT)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(pidfd, ended.set)
        try:
            async with asyncio.timeout(_STEP_S):
                await ended.wait()
        finally:
            loop.remove_reader(pidfd)
    finally:
        os.close(pidfd)


class CutRemote:
    """The login host, as a `remote_script.Remote`."""

    def __init__(self, cut: Cut, home: Path) -> None:
        self._cut = cut
        self._home = home

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed:
        cut = self._cut
        cut.count_chunks()
        cut.check()
        is_cut = cut.step()
        if is_cut and cut.how == LOST:
            raise _broken()
        command = remote_command(["env", f"HOME={self._home}", *argv])
        late = is_cut and cut.how == LATE
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", "kill -STOP $$; " + command if late else command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        if late:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
            await _stopped(process.pid)
            cut.hold(process)
            raise _broken()
        try:
            async with asyncio.timeout(timeout_s):
                out, err = await process.communicate(stdin)
        except TimeoutError as error:
            raise TimeoutExpired("no answer in time", transient=True) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if is_cut or not cut.is_up:
            raise _broken()
        return Completed(process.returncode or 0, out, err)

    def remote_shell(self) -> list[str]:
        cut = self._cut
        cut.count_chunks()
        left = cut.at - cut.steps if cut.is_up else 0
        how = cut.how if cut.is_up else LOST
        (cut.directory / "plan").write_text(f"{how} {left if cut.at >= 0 or not cut.is_up else -1}")
        return [sys.executable, "-I", "-S", str(_SHELL), str(cut.directory)]

    def destination(self) -> str:
        return "login"


class CutStream:
    """The stream of an agent's link, which the cut stands in."""

    def __init__(self, cut: Cut, stream: ByteStream) -> None:
        self._cut = cut
        self._stream = stream
        self._near, self._inner = socket.socketpair()
        for end in (self._near, self._inner):
            end.setblocking(False)
        self._far = socket.socket(fileno=os.dup(stream.fileno()))
        self._late: asyncio.Event | None = None
        self._tasks = [asyncio.create_task(self._there()), asyncio.create_task(self._back())]
        self._closing: asyncio.Task[None] | None = None

    def fileno(self) -> int:
        return self._near.fileno()

    async def wait(self) -> int:
        return await self._stream.wait()

    def diagnosis(self) -> str:
        return self._stream.diagnosis()

    async def close(self) -> None:
        self._near.close()
        if self._late is None:
            await self._end()
        elif self._closing is None:  # the far end of a link does not know of its end
            self._closing = asyncio.create_task(self._end_later(self._late))

    async def _end_later(self, late: asyncio.Event) -> None:
        await late.wait()
        await asyncio.wait(self._tasks[:1])
        await self._end()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._inner.close()
        self._far.close()
        await self._stream.close()

    async def _there(self) -> None:
        loop, cut = asyncio.get_running_loop(), self._cut
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(self._inner, 1 << 16):
                if not cut.is_up:
                    break
                if cut.step():
                    if cut.how == LATE:
                        self._late = cut.held()
                    elif cut.how == UNANSWERED:
                        await loop.sock_sendall(self._far, data)
                        await asyncio.sleep(0.05)  # it is done there
                    break
                await loop.sock_sendall(self._far, data)
            self._inner.shutdown(socket.SHUT_WR)
            if self._late is not None:
                await self._late.wait()
                await loop.sock_sendall(self._far, data)

    async def _back(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(self._far, 1 << 16):
                if not self._cut.is_up:
                    return
                await loop.sock_sendall(self._inner, data)


class CutNode(Node):
    """An agent, the link to which is cut with the others."""

    def __init__(self, directory: Path, cut: Cut) -> None:
        super().__init__(directory)
        self._cut = cut

    async def renew(self) -> None:
        """Another session's line to the same agent."""
        if self._life is not None:
            await cancel_all(self._life)
        await self.client.close("the session was killed")
        self.client = AgentClient(self._dial, on_channel=lambda channel, header: None, notices={})
        self.host = HeldFileAgent(self.client, is_node=True)
        await self.start()

    async def _dial(self) -> ByteStream:
        self._cut.check()
        if not self._cut.has_node:
            raise _broken()
        return CutStream(self._cut, await super()._dial())


class CutRig(Rig):
    """A laptop directory and a cluster home, and the links between them."""

    def __init__(self, tmp_path: Path, *, live: bool) -> None:
        self.cut = Cut(tmp_path / "cut")
        self.cut_node = CutNode(tmp_path / "agent", self.cut) if live else None
        super().__init__(Sshd.known(tmp_path, 0), tmp_path, self.cut_node)
        self.remote = CutRemote(self.cut, self.home)  # type: ignore[assignment]
