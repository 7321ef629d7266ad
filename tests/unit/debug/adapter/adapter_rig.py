"""debugpy's adapter as tk starts it, between an editor and a debuggee that tests play."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tunnelkit.debug.adapter.adapter import Adapter, Adapters
from tunnelkit.demo.dap_client import DapClient
from tunnelkit.mux.dap_framing import DapReader, encode, response

_DEADLINE_S = 30.0
_SYSTEM_INFO = {
    "python": {"version": "3.12.0", "implementation": {"name": "cpython"}},
    "platform": {"name": "linux"},
    "process": {"pid": 4711, "ppid": 1, "bitness": 64},
}


class Debuggee:
    """The server's end of an adapter, by hand: requests come in, answers go out when told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = DapReader()
        self._waiting: list[dict[str, Any]] = []

    async def request(self, command: str) -> dict[str, Any]:
        """The next request, which must be that one."""
        while not self._waiting:
            data = await self._reader.read(65536)
            assert data, f"the adapter hung up before {command}"
            messages = [json.loads(body) for body in self._frames.feed(data)]
            self._waiting += [one for one in messages if one["type"] == "request"]
        assert self._waiting[0]["command"] == command
        return self._waiting.pop(0)

    def answer(self, request: dict[str, Any], **body: Any) -> None:
        self._writer.write(encode({**response(request), "body": body}))

    def refuse(self, request: dict[str, Any], text: str) -> None:
        refusal = {**response(request), "success": False, "message": text}
        self._writer.write(encode(refusal))

    def close(self) -> None:
        self._writer.close()


@dataclass
class Rig:
    """An editor and a debuggee, both by hand, with an adapter between them."""

    adapter: Adapter
    editor: DapClient
    debuggee: Debuggee


@asynccontextmanager
async def adapter_rig() -> AsyncIterator[Rig]:
    """An adapter with a debuggee; the editor has not connected yet."""
    adapters, editor = Adapters(), DapClient("a test")
    async with asyncio.timeout(_DEADLINE_S):
        adapter = await adapters.start()
        try:
            debuggee = Debuggee(*await asyncio.open_connection("127.0.0.1", adapter.server_port))
            debuggee.answer(await debuggee.request("pydevdSystemInfo"), **_SYSTEM_INFO)
            yield Rig(adapter, editor, debuggee)
            debuggee.close()
        finally:
            await editor.drop()
            adapter.close()
            await adapters.close()
