"""`tk pdb --port`: pdb's plain text for nc, and the program's stderr in this terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tunnelkit.cli.views.pdb_run import say

if TYPE_CHECKING:
    from tunnelkit.mux.channel import Channel
    from tunnelkit.session.runtime.control_answers import StreamEnd
    from tunnelkit.session.runtime.paths import SessionPaths

_STDERR_S = 2.0


class PdbText:
    """The program of one `tk pdb --port`. timeout_s: how long to wait for a client."""

    def __init__(self, words: list[str], *, port: int, timeout_s: float) -> None:
        self._words = words
        self._port = port
        self._timeout_s = timeout_s
        self._stderr: asyncio.Future[Channel] | None = None

    async def run(self, paths: SessionPaths) -> StreamEnd | None:
        """Serve the program to its end, which is returned; None: no client came in time."""
        from tunnelkit.debug.pdb.pdb_port import PdbPort
        from tunnelkit.mux.tasks import cancel_all
        from tunnelkit.session.runtime import control_client
        from tunnelkit.session.runtime.control_calls import PdbStream

        self._stderr = asyncio.get_running_loop().create_future()
        async with control_client.connect(paths, on_channel=self._opened) as session:
            channel = session.open(PdbStream(words=self._words, here=os.getcwd()))
            port = PdbPort(channel, say)
            errors = asyncio.create_task(self._carry_stderr())
            try:
                number = port.open(self._port)
                say(f"pdb waits {self._timeout_s:g} s for a client: nc 127.0.0.1 {number}")
                if not await port.serve(self._timeout_s):
                    return None
                detail = await control_client.end_of(channel)
                if "code" in detail:
                    await asyncio.wait([errors], timeout=_STDERR_S)
                return detail
            finally:
                await port.close()
                await cancel_all(errors)
                if not channel.is_over:
                    # It ends the program.
                    channel.close()

    def _opened(self, channel: Channel, header: Mapping[str, object]) -> None:
        known = self._stderr
        if header.get("type") == "stderr" and known is not None and not known.done():
            known.set_result(channel)
        else:
            channel.close({"error": "unexpected stream"})

    async def _carry_stderr(self) -> None:
        assert self._stderr is not None
        channel = await self._stderr
        with contextlib.suppress(OSError):
            while data := await channel.read():
                sys.stderr.flush()
                os.write(sys.stderr.fileno(), data)
