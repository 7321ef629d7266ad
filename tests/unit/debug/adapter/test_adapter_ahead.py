"""What the adapter sends a debuggee that is far away, and what it waits for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from tunnelkit.debug.adapter.adapter import Adapters
from tunnelkit.demo.dap_client import DapClient
from tunnelkit.errors import DebugError
from tunnelkit.mux.dap_framing import DapReader, encode, error_response, response

_DEADLINE_S = 30.0
SYSTEM_INFO = {
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
        self._writer.write(encode(error_response(request, text)))

    def close(self) -> None:
        self._writer.close()


@dataclass
class Rig:
    """An editor and a debuggee, both by hand, with an adapter between them."""

    editor: DapClient
    debuggee: Debuggee


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    adapters, editor = Adapters(), DapClient("a test")
    async with asyncio.timeout(_DEADLINE_S):
        adapter = await adapters.start()
        try:
            debuggee = Debuggee(*await asyncio.open_connection("127.0.0.1", adapter.server_port))
            debuggee.answer(await debuggee.request("pydevdSystemInfo"), **SYSTEM_INFO)
            await editor.connect(adapter.client_port)
            yield Rig(editor, debuggee)
            debuggee.close()
        finally:
            await editor.drop()
            adapter.close()
            await adapters.close()


async def test_what_needs_no_answer_waits_for_none(rig: Rig) -> None:
    attaching = asyncio.create_task(rig.editor.attach({}))
    initialize = await rig.debuggee.request("initialize")
    attach = await rig.debuggee.request("attach")
    rig.debuggee.answer(initialize, supportsConfigurationDoneRequest=True)
    rig.debuggee.answer(attach)
    filters = await rig.debuggee.request("setExceptionBreakpoints")
    done = await rig.debuggee.request("configurationDone")
    rig.debuggee.answer(filters)
    rig.debuggee.answer(done)
    await attaching


async def test_filters_with_options_or_of_a_running_program_are_answered_by_the_debuggee(
    rig: Rig,
) -> None:
    attaching = asyncio.create_task(rig.editor.attach({}))
    for command in ("initialize", "attach", "setExceptionBreakpoints", "configurationDone"):
        rig.debuggee.answer(await rig.debuggee.request(command))
    await attaching
    for more in ({}, {"exceptionOptions": [{"breakMode": "never"}]}):
        asking = asyncio.create_task(
            rig.editor.request("setExceptionBreakpoints", filters=["raised"], **more)
        )
        request = await rig.debuggee.request("setExceptionBreakpoints")
        assert request["arguments"] == {"filters": ["raised"], **more}
        assert not asking.done()
        rig.debuggee.refuse(request, "not today")
        with pytest.raises(DebugError, match="not today"):
            await asking
