"""One call to a session, without an event loop of the command's own."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tunnelkit.mux.rpc import Handler
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_calls import Status
from tunnelkit.session.runtime.control_server import ControlServer
from tunnelkit.session.runtime.paths import SessionPaths


async def test_what_an_answer_needs_is_loaded_while_the_session_works() -> None:
    loop, loaded, took = asyncio.get_running_loop(), asyncio.Event(), list[object]()

    async def answers_once_it_is_loaded(params: dict[str, object]) -> object:
        await loaded.wait()
        return {"state": "ready"}

    def load() -> None:
        took.append("loaded")
        loop.call_soon_threadsafe(loaded.set)

    with tempfile.TemporaryDirectory(prefix="tkc") as base:
        paths = SessionPaths("0", Path(base, "r"), Path(base, "s"))
        paths.make()
        handlers: dict[str, Handler] = {Status.NAME: answers_once_it_is_loaded}
        server = ControlServer(
            paths.control_socket, lambda one: handlers, lambda channel, *_: channel.close()
        )
        server.open()
        try:
            async with asyncio.timeout(30.0):
                answer = await asyncio.to_thread(ask, paths, Status(), meanwhile=load)
        finally:
            await server.close()
    assert answer["state"] == "ready"
    assert took == ["loaded"]
