"""One relay as the agent has it: the process that runs it there, and the wire to it."""

import asyncio
import contextlib
import os
import re
import time
from typing import Callable, Dict, List, Mapping, Optional

from tunnelkit.agent.links.paced_mux import PacedMux
from tunnelkit.agent.processes.table import ChildProcess, ProcessTable
from tunnelkit.mux import rpc
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.fd_io import read_fd
from tunnelkit.mux.hello import exchange_hello
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.handshake import HelloReader, Status

#: Seconds that a relay may take to end, after an order or a lost link.
_GRACE_S = 3.0
#: A relay that leaves this many pings in a row unanswered is lost; Slurm itself takes minutes
#: to notice a dead node. Counted, not timed: a suspended job has missed at most one.
_PING_S = 10.0
_MISSED_PINGS = 6
_TAIL_BYTES = 4096
#: What srun says after the line that tells the reason.
_EPILOGUE = re.compile(r"srun: (error: .*: task \d+: |Job step aborted|Terminating|Force Term)")


class RelayFailed(rpc.RpcError):
    """A relay can't be started, or is gone: on which node, and why."""

    def __init__(self, node: str, why: str, hint: str = "") -> None:
        message = f"no relay of the agent on {node}: {why}"
        super().__init__({"message": message, "node": node, **({"hint": hint} if hint else {})})
        self.why = why


class RelayProcess:
    """A relay on `node`: `start`, then `call` until `on_lost` or `stop`. Used once.

    on_channel: the relay opened a channel. on_lost(node, why): it is gone, not by `stop`;
    all channels have ended and nothing of it is left here.
    """

    def __init__(
        self,
        node: str,
        table: ProcessTable,
        on_channel: Callable[[Channel, Dict[str, object]], None],
        on_lost: Callable[[str, str], None],
    ) -> None:
        self.node = node
        self._table = table
        self._on_lost = on_lost
        self._mux = PacedMux(Endpoint(client=True), on_channel)
        self._peer: Optional[rpc.RpcPeer] = None
        self._process: Optional[ChildProcess] = None
        self._fds: List[int] = []
        self._said = bytearray()
        self._reader = HelloReader()
        self._reading: Optional[asyncio.Task[None]] = None
        self._watching: Optional[asyncio.Task[None]] = None
        self._stopping = False

    async def start(self, argv: List[str], env: Mapping[str, str], timeout_s: float) -> None:
        """Run `argv` and wait until the relay in it answers. Raises RelayFailed, leaving
        nothing behind."""
        try:
            lost = await asyncio.wait_for(self._begin(argv, env), timeout_s)
        except asyncio.TimeoutError:
            await self._settle(0.0)
            why = f"it did not answer within {timeout_s:g} s"
            raise RelayFailed(self.node, f"{why}; {argv[0]}: {self._last_line() or '-'}") from None
        except (OSError, ProtocolError, rpc.RpcError) as error:
            code = await self._settle(_GRACE_S)
            raise RelayFailed(self.node, self._last_line() or code or str(error)) from None
        except BaseException:
            await self._settle(0.0)
            raise
        self._watching = asyncio.ensure_future(self._watch(lost))

    async def call(self, method: str, **params: object) -> object:
        """Call the relay. Raises RpcError; its data has "gone" if the relay is lost."""
        if self._peer is None:
            raise RelayFailed(self.node, "it was not started")
        return await self._peer.call(method, **params)

    async def stop(self, reason: str) -> None:
        """End the relay; returns once its process here is gone."""
        self._stopping = True
        if self._watching is None:
            return
        self._mux.end(reason)
        await asyncio.wait([self._watching], timeout=_GRACE_S)
        self._mux.detach(reason)
        await asyncio.wait([self._watching])

    # -- beginning --------------------------------------------------------

    async def _begin(self, argv: List[str], env: Mapping[str, str]) -> "asyncio.Future[str]":
        self._process, self._fds = self._table.spawn_piped(argv, cwd="/", env=env)
        to_relay, from_relay, errors = self._fds
        self._reading = asyncio.ensure_future(self._read_errors(errors))
        mine = self._mux.hello(Status.FRESH, os.urandom(16))
        hello, rest = await exchange_hello(from_relay, to_relay, mine, self._reader)
        self._reader = HelloReader()
        lost = self._mux.attach(from_relay, to_relay, hello, rest)
        self._peer = rpc.RpcPeer(self._mux.open({"type": "rpc"}), {})
        serving = asyncio.ensure_future(self._peer.serve())
        # It ends with the channel; its error, if any, is reported by the link's end.
        serving.add_done_callback(lambda task: task.cancelled() or task.exception())
        await self._peer.call("info")
        return lost

    async def _read_errors(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = await read_fd(fd)
                if not data:
                    return
                self._said += data
                del self._said[:-_TAIL_BYTES]

    # -- the end ----------------------------------------------------------

    async def _watch(self, lost: "asyncio.Future[str]") -> None:
        minding = asyncio.ensure_future(self._mind())
        try:
            why = await lost
        finally:
            await cancel_all(minding)
        # Callers that wait for a channel must not wait for a slow process.
        self._mux.end(why)
        code = await self._settle(_GRACE_S)
        if not self._stopping:
            self._on_lost(self.node, self._last_line() or code or why)

    async def _mind(self) -> None:
        missed = 0
        while missed < _MISSED_PINGS:
            before = time.monotonic()
            self._mux.endpoint.ping()
            self._mux.flush()
            await asyncio.sleep(_PING_S)
            missed = 0 if self._mux.last_heard >= before else missed + 1
        self._mux.detach(f"nothing heard for {_MISSED_PINGS * _PING_S:g} s")

    async def _settle(self, grace_s: float) -> str:
        """Let go of the process, or make it go; how it ended, in words ("" if well)."""
        self._mux.end("the relay's link is lost")
        self._mux.detach("the relay's link is lost")
        for fd in self._fds[:2]:
            os.close(fd)
        words = ""
        if self._process is not None:
            await asyncio.wait([self._process.exited], timeout=grace_s)
            if not self._process.exited.done():
                words = "it had to be killed"
            # Also after a good end: srun is several processes.
            how = await self._table.end(self._process, _GRACE_S)
            if how.signal or how.code:
                words = words or f"ended by {how.signal or f'exit code {how.code}'}"
        if self._reading is not None:
            # The last line may still be on its way; a process that fled could hold it open.
            await asyncio.wait([self._reading], timeout=1.0)
            await cancel_all(self._reading)
        for fd in self._fds[2:]:
            os.close(fd)
        self._fds = []
        return words

    def _last_line(self) -> str:
        """The last line that says something: of stderr, else of what came for a hello."""
        lines = (self._said or self._reader.noise).decode("utf-8", "replace").splitlines()
        texts = [line.strip() for line in lines if line.strip()]
        reasons = [line for line in texts if not _EPILOGUE.match(line)]
        return (reasons or texts or [""])[-1]
