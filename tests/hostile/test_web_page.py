"""A web page is not an editor: it is hung up on, and no debuggee is spent on it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.hostile import web_page
from tests.support.tkrig import PROGRAM, Project, line_of

STOP = line_of(PROGRAM, "total += step")


async def _armed(project: Project) -> dict[str, Any]:
    await project.tk("ready", "--sync")
    loop: dict[str, Any] = (await project.status())["loops"][0]
    return loop


async def test_no_request_of_a_page_ends_an_armed_debuggee(project: Project) -> None:
    await project.up("node1", "--cpus", "2")
    await project.loop("python", "2.py")
    before = await _armed(project)
    for name, data in web_page.REQUESTS.items():
        answer = await asyncio.to_thread(web_page.send, project.port, data)
        assert answer == b"", name
    after = await _armed(project)
    assert [after[key] for key in ("state", "generation", "pid")] == [
        before[key] for key in ("state", "generation", "pid")
    ]
    # The person's own editor is served as ever, and a page does not disturb it.
    editor, thread, _ = await project.f5_to_stop(STOP)
    for data in web_page.REQUESTS.values():
        assert await asyncio.to_thread(web_page.send, project.port, data) == b""
    await editor.request("next", threadId=thread)
    _, frame = await editor.stopped()
    assert frame["line"] == STOP + 1


async def test_without_a_loop_a_page_gets_nothing(project: Project) -> None:
    await project.up("node1", "--cpus", "2")
    for name, data in web_page.REQUESTS.items():
        assert await asyncio.to_thread(web_page.send, project.port, data) == b"", name
