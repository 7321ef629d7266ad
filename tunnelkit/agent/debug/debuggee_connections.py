"""Connections of debuggees that dialled in; they outlive the session that talks to them.

A debuggee speaks DAP with an adapter on the laptop. When that session dies, its adapter dies too,
but the debuggee must not notice: its connection is kept here, whole messages only, and offered to
the next session, whose new adapter goes on with it. What the next editor has to know (which threads
are stopped) is kept and sent again.
"""

import asyncio
import contextlib
import json
import socket
from typing import Callable, Coroutine, Dict, List, Optional, Set

from tunnelkit.agent.debug.rank_support import DialedProcess
from tunnelkit.agent.debug.read_ahead import Moved, ReadAhead
from tunnelkit.agent.processes import port_file
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.dap_framing import DapError, DapReader, frame, refusal
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.splice import no_delay, quick_ack
from tunnelkit.mux.tasks import cancel_all, first_of

_READ_BYTES = 64 * 1024


class Debuggee:
    """One connection. `run` carries it to its end, over one session after the other."""

    def __init__(
        self, sock: socket.socket, loop_id: int, generation: int, who: DialedProcess
    ) -> None:
        self.loop_id = loop_id
        self.generation = generation
        self.who = who
        self._sock = sock
        self._sending = asyncio.Lock()
        self._ahead = ReadAhead()
        # Hanging up would let the program go: a value may be longer than any message.
        self._frames = DapReader(refusal)
        self._waits: asyncio.Future[List[bytes]]
        self._channel: Optional[Channel] = None
        self._offered = asyncio.Event()
        self._stopped: Dict[object, bytes] = {}
        self._configured_seq: Optional[int] = None
        self._resumed = False
        self._sessions = 0

    def offer(self, channel: Channel) -> None:
        """A session's channel to carry this connection from now on."""
        self._channel = channel
        self._ahead.reset()
        self._sessions += 1
        self._resumed = self._sessions > 1
        self._offered.set()

    async def run(self) -> None:
        """Carry bytes until the debuggee hangs up or a session's adapter does."""
        no_delay(self._sock)
        quick_ack(self._sock)
        reading = asyncio.ensure_future(self._read())
        try:
            while not reading.done():
                offered = asyncio.ensure_future(self._offered.wait())
                await first_of(reading, offered)
                await cancel_all(offered)
                if not self._offered.is_set():
                    break
                self._offered.clear()
                serving = asyncio.ensure_future(self._serve(self._channel))
                await first_of(reading, serving)
                if serving.done() and not serving.result():
                    break
                await cancel_all(serving)
        finally:
            await cancel_all(reading)
            if self._channel is not None and not self._channel.is_over:
                self._channel.close()
            self._sock.close()

    async def _serve(self, channel: Optional[Channel]) -> bool:
        """Messages from one session to the debuggee. True: that session died, another may
        come. False: its adapter hung up, and so do we."""
        assert channel is not None
        frames = DapReader()
        while True:
            data = await channel.read()
            if not data:
                if self._channel is channel:
                    self._channel = None
                if not channel.is_over:
                    channel.close()
                return channel.was_cut
            for body in frames.feed(data):
                self._note_request(body)
                moved = self._ahead.down(body)
                await self._send(moved.to_debuggee)
                if moved.to_session:
                    await channel.write(_framed(moved.to_session))

    async def _read(self) -> None:
        """Messages from the debuggee; without a session they are only taken note of."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._waits = loop.create_future()
                loop.add_reader(self._sock, self._readable)
                try:
                    down = await self._waits
                finally:
                    loop.remove_reader(self._sock)
                if self._channel is not None:
                    await self._channel.room()
                await self._send(down)
        except (OSError, DapError):
            return

    def _readable(self) -> None:
        """Pass on what has come, within the event that brings it: many ranks answer at once.

        What needs a task, that is to wait or to send, ends the reading for a moment.
        """
        if self._waits.done():
            return
        try:
            data = self._sock.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError
            quick_ack(self._sock)
            down = self._take(data)
            if down or (self._channel is not None and self._channel.is_full()):
                self._waits.set_result(down)
        except (BlockingIOError, InterruptedError):
            return
        except Exception as error:
            # Whatever a debuggee sends, only its own connection ends.
            self._waits.set_exception(error)

    def _take(self, data: bytes) -> List[bytes]:
        """Pass on the debuggee's messages; return those to send to it."""
        up: List[bytes] = []
        down: List[bytes] = []
        for body in self._frames.feed(data):
            moved = self._ahead.up(body) if self._channel else Moved([body], [])
            up += [out for one in moved.to_session for out in self._pass_up(one)]
            down += moved.to_debuggee
        if up and self._channel is not None:
            self._channel.write_soon(_framed(up))
        return down

    async def _send(self, bodies: List[bytes]) -> None:
        if bodies:
            async with self._sending:
                await asyncio.get_running_loop().sock_sendall(self._sock, _framed(bodies))

    def _pass_up(self, body: bytes) -> List[bytes]:
        self._note_event(body)
        if self._resumed and self._is_configured(body):
            self._resumed = False
            return [body, *self._stopped.values()]
        return [body]

    def _note_request(self, body: bytes) -> None:
        if self._resumed and b'"configurationDone"' in body:
            self._configured_seq = json.loads(body).get("seq")

    def _is_configured(self, body: bytes) -> bool:
        return b'"configurationDone"' in body and (
            json.loads(body).get("request_seq") == self._configured_seq
        )

    def _note_event(self, body: bytes) -> None:
        if b'"stopped"' in body[:200]:
            event = json.loads(body)
            if event.get("event") == "stopped":
                self._stopped[event.get("body", {}).get("threadId")] = body
        elif b'"continued"' in body[:200] and self._stopped:
            event = json.loads(body)
            if event.get("event") == "continued":
                details = event.get("body", {})
                if details.get("allThreadsContinued"):
                    self._stopped.clear()
                else:
                    self._stopped.pop(details.get("threadId"), None)


class DebuggeeConnections:
    """All debuggees of the agent, and which loops the session of the moment has claimed."""

    def __init__(self, spawn: "Callable[[Coroutine[object, object, None]], None]") -> None:
        self._spawn = spawn
        self._live: List[Debuggee] = []
        self._mux: Optional[Mux] = None
        self._claimed: Set[int] = set()

    def new_session(self, mux: Mux) -> None:
        """Another session took over; it gets nothing before it claims a loop."""
        self._mux = mux
        self._claimed = set()

    def claim(self, loop_id: int) -> int:
        """The session is ready for this loop's debuggees: offer those that wait; how many."""
        self._claimed.add(loop_id)
        waiting = [debuggee for debuggee in self._live if debuggee.loop_id == loop_id]
        for debuggee in waiting:
            self._offer(debuggee)
        return len(waiting)

    @property
    def pids(self) -> Set[int]:
        """The processes of this node that have a debugger."""
        here = port_file.node_name()
        return {one.who.identity.pid for one in self._live if one.who.node == here}

    def add(
        self,
        sock: socket.socket,
        loop_id: int,
        generation: int,
        who: DialedProcess,
        on_end: Callable[[DialedProcess], None] = lambda who: None,
    ) -> None:
        """A debuggee dialled in. on_end: called when its connection is over."""
        debuggee = Debuggee(sock, loop_id, generation, who)
        self._live.append(debuggee)
        self._spawn(self._carry(debuggee, on_end))
        if loop_id in self._claimed:
            self._offer(debuggee)

    def _offer(self, debuggee: Debuggee) -> None:
        assert self._mux is not None
        debuggee.offer(
            self._mux.open(
                {
                    "type": "debuggee",
                    "loop": debuggee.loop_id,
                    "generation": debuggee.generation,
                    **debuggee.who.describe(),
                }
            )
        )

    async def _carry(self, debuggee: Debuggee, on_end: Callable[[DialedProcess], None]) -> None:
        try:
            with contextlib.suppress(OSError, DapError):
                await debuggee.run()
        finally:
            self._live.remove(debuggee)
            on_end(debuggee.who)


def _framed(bodies: List[bytes]) -> bytes:
    return b"".join(map(frame, bodies))
