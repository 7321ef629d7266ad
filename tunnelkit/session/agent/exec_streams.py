"""Streams of `tk run` and `tk shell`: a terminal on the laptop, a process on the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tunnelkit.child_process import MOST_BYTES, MOST_ERROR_BYTES
from tunnelkit.errors import ConnectionFailed, TimeoutExpired, TunnelkitError
from tunnelkit.messages.agent_calls import EXEC_RESIZE, EXEC_SIGNAL, ExecResize
from tunnelkit.model import Completed
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.exec_relay import join, pump

_PIECE_BYTES = 64 * 1024


class ExecStreams:
    """Connects exec channels of the control socket with exec channels of the agent."""

    def __init__(self, agent: Callable[[], AgentClient]) -> None:
        self._agent = agent
        self._far_ids: dict[tuple[Mux, int], int] = {}
        self._stderr: dict[int, asyncio.Future[Channel]] = {}
        #: Channels of `complete`, for their stderr.
        self._own: set[int] = set()

    async def run(self, near_mux: Mux, near: Channel, header: dict[str, object]) -> None:
        """Start the process on the node and carry its streams until it ends."""
        try:
            agent = self._agent()
        except TunnelkitError as error:
            near.close({"failure": error.to_json()})
            return
        far = agent.open(header)
        self._far_ids[near_mux, near.id] = far.id
        errors = asyncio.create_task(self._carry_stderr(near_mux, near, far))
        try:
            await join(near, far)
            # stderr has its own channel; the process is over when both channels have ended.
            await asyncio.wait([errors], timeout=2.0)
        finally:
            await cancel_all(errors)
            self._stderr.pop(far.id, None)
            del self._far_ids[near_mux, near.id]

    def stderr_opened(self, channel: Channel, header: dict[str, object]) -> None:
        """Accept the stderr channel that the agent opened for one of these processes."""
        far_id = header.get("for")
        is_known = far_id in self._own or far_id in self._far_ids.values()
        if isinstance(far_id, int) and is_known:
            stderr = self._stderr_of(far_id)
            if not stderr.done():
                stderr.set_result(channel)
                return
        channel.abort({"error": "no such process"})

    async def complete(self, argv: Sequence[str], *, stdin: bytes, timeout_s: float) -> Completed:
        """Run a command on the node to its end, as `Link.run` does, without a stream of its own.

        Raises ConnectionFailed if it can't be started, TimeoutExpired."""
        far = self._agent().open({"type": "exec", "argv": list(argv), "env": {}})
        self._own.add(far.id)
        errors = asyncio.create_task(self._read_errors(far.id))
        feeding = asyncio.create_task(_feed(far, stdin))
        try:
            async with asyncio.timeout(timeout_s):
                out = await _read_all(far, MOST_BYTES)
                detail = await far.closed()
                stderr = await errors
        except TimeoutError as error:
            raise TimeoutExpired(
                f"`{argv[0]}` on the node took more than {timeout_s:g} s",
                hint="is it overloaded? `tk top` shows it",
                transient=True,
            ) from error
        finally:
            await cancel_all(errors, feeding)
            self._own.discard(far.id)
            self._stderr.pop(far.id, None)
            if not far.is_over:
                far.abort({"error": "no longer wanted"})
        code = (detail or {}).get("code")
        if not isinstance(code, int):
            raise ConnectionFailed(
                f"`{argv[0]}` on the node did not run to its end",
                cause=str((detail or {}).get("error") or "a signal ended it")[:300],
                transient=True,
                hint="tk tries again; `tk status` shows the state",
            )
        return Completed(code, out, stderr)

    async def _read_errors(self, far_id: int) -> bytes:
        return await _read_all(await self._stderr_of(far_id), MOST_ERROR_BYTES)

    async def signal(self, mux: Mux, near_id: int, name: str) -> None:
        """Send a signal to the process's group on the node."""
        far_id = self._far_ids.get((mux, near_id))
        if far_id is not None:
            await EXEC_SIGNAL.ask(self._agent(), {"channel": far_id, "signal": name})

    async def resize(self, mux: Mux, near_id: int, rows: int, cols: int) -> None:
        """Set the terminal size of the process on the node."""
        far_id = self._far_ids.get((mux, near_id))
        if far_id is not None:
            size: ExecResize = {"channel": far_id, "rows": rows, "cols": cols}
            await EXEC_RESIZE.ask(self._agent(), size)

    def _stderr_of(self, far_id: int) -> asyncio.Future[Channel]:
        return self._stderr.setdefault(far_id, asyncio.get_running_loop().create_future())

    async def _carry_stderr(self, near_mux: Mux, near: Channel, far: Channel) -> None:
        source = await self._stderr_of(far.id)
        sink = near_mux.open({"type": "stderr", "for": near.id})
        await pump(source, sink)
        sink.close()


async def _feed(channel: Channel, data: bytes) -> None:
    for at in range(0, len(data), _PIECE_BYTES):
        await channel.write(data[at : at + _PIECE_BYTES])
    channel.write_eof()


async def _read_all(channel: Channel, most_bytes: int) -> bytes:
    """Return what comes until the end; what is beyond the limit is dropped."""
    found = bytearray()
    while data := await channel.read():
        found += data[: most_bytes - len(found)]
    return bytes(found)
