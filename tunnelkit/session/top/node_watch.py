"""One node's probe, read as long as somebody looks; started again when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tunnelkit.diagnosis.evidence.window import MOST_BYTES, NodeWindow, parse_window
from tunnelkit.errors import TunnelkitError
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.top.probe_stream import OpenProbe, ProbeStream

_AGAIN_S = 3.0
#: The probe ends by itself when it hears nothing for half a minute.
_BEAT_S = 8.0
#: The probe prints every two seconds, on nodes with very many threads less often.
_SILENT_S = 45.0


class NodeWatch:
    """newest: the last period; whole: the last ten seconds. problem: why there is neither.

    changed: called with each new window, and when there is a problem."""

    def __init__(
        self, start: OpenProbe, job_id: str, node: str, changed: Callable[[], None]
    ) -> None:
        self.node = node
        self.newest: NodeWindow | None = None
        self.whole: NodeWindow | None = None
        self.problem = ""
        self._start = start
        self._job_id = job_id
        self._changed = changed

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                probe = await self._start(self._job_id, self.node)
                beating = asyncio.create_task(_beat(probe))
                try:
                    await self._read(probe)
                finally:
                    await cancel_all(beating)
                    await probe.close()
            except TunnelkitError as error:
                self._is_silent(error.one_line())
            except (OSError, TimeoutError) as error:
                self._is_silent(str(error) or f"no answer for {_SILENT_S:.0f} s")
            await asyncio.sleep(_AGAIN_S)

    async def _read(self, probe: ProbeStream) -> None:
        buffer = b""
        while True:
            async with asyncio.timeout(_SILENT_S):
                data = await probe.read()
            if not data:
                words = probe.why().strip().splitlines()
                self._is_silent(words[-1][:300] if words else "the probe has ended")
                return
            *lines, buffer = (buffer + data).split(b"\n")
            if len(buffer) > MOST_BYTES:
                self._is_silent("its answer is longer than the probe's ever is")
                return
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        window = parse_window(line, self.node)
        if window is None:
            return
        self.problem = ""
        if b'"whole":true' in line:
            self.whole = window
        else:
            self.newest = window
        self._changed()

    def _is_silent(self, why: str) -> None:
        self.newest = self.whole = None
        self.problem = why
        self._changed()


async def _beat(probe: ProbeStream) -> None:
    """Tell the probe now and then that somebody looks; reading notices its end."""
    while True:
        await asyncio.sleep(_BEAT_S)
        try:
            await probe.beat()
        except (TunnelkitError, OSError):
            return
