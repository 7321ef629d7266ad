"""Read-ahead: a stop costs one round trip, and the debuggee is asked what its editor would ask.

Round trips are counted by a distance that is long beside all else.
"""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import AsyncIterator

import pytest

from tests.support.tkrig import Project, line_of
from tunnelkit import lab as tk_lab
from tunnelkit.demo.dap_client import DapClient, Message

_RTT_MS = 800.0
PROGRAM = textwrap.dedent(
    """\
    class Model:
        def __init__(self):
            self.layers, self.name = [1, 2], "net"

        def train(self):
            total, word = 0, "epoch"
            for step in range(20):
                total += step
                word = word + "."
            return total


    Model().train()
    """
)
STOP = line_of(PROGRAM, "total, word")


@pytest.fixture
async def up(project: Project) -> AsyncIterator[Project]:
    project.write("main.py", PROGRAM)
    await project.up("node1")
    yield project


async def on_screen(editor: DapClient, thread: int) -> tuple[Message, dict[str, Message]]:
    """Ask as VS Code does after a stop; the top frame, and its locals by name."""
    await editor.request("threads")
    stack = await editor.request("stackTrace", threadId=thread, startFrame=0, levels=1)
    await editor.request("stackTrace", threadId=thread, startFrame=1, levels=19)
    frame = stack["stackFrames"][0]
    scopes = await editor.request("scopes", frameId=frame["id"])
    reference = scopes["scopes"][0]["variablesReference"]
    found = await editor.request("variables", variablesReference=reference)
    return frame, {one["name"]: one for one in found["variables"]}


async def step(editor: DapClient, thread: int) -> tuple[Message, dict[str, Message]]:
    stepping = asyncio.create_task(editor.request("next", threadId=thread))
    await editor.wait_event("stopped")
    found = await on_screen(editor, thread)
    await stepping
    return found


def trips(since: float) -> float:
    return (time.perf_counter() - since) * 1e3 / _RTT_MS


async def test_round_trips_of_f5_steps_and_hovers(up: Project) -> None:
    terminal = await up.loop("python", "main.py")
    editor, thread, _ = await up.f5_to_stop(STOP, file="main.py")
    await on_screen(editor, thread)
    await editor.finish(thread)
    tk_lab.set_rtt(_RTT_MS, up.lab.dir)
    to_stop, to_locals, steps, hovers = [], [], [], []
    try:
        for run in (2, 3):
            await terminal.line(rf"run {run} .*armed")
            began = time.perf_counter()
            editor = await up.f5(STOP, file="main.py")
            thread = int((await editor.wait_event("stopped"))["threadId"])
            to_stop.append(trips(began))
            await on_screen(editor, thread)
            to_locals.append(trips(began))
            if run == 2:
                await editor.finish(thread)
        for _ in range(3):
            began = time.perf_counter()
            frame, seen = await step(editor, thread)
            steps.append(trips(began))
            began = time.perf_counter()
            hovered = await editor.request(
                "evaluate", expression="word", frameId=frame["id"], context="hover"
            )
            hovers.append(trips(began))
            assert hovered["result"] == seen["word"]["value"]
    finally:
        tk_lab.set_rtt(0, up.lab.dir)
    # A trip is long beside all else; so is what a busy machine adds to one of several.
    assert min(to_stop) >= 2 and min(to_locals) < 3
    assert 1 <= min(steps) < 1.5 and min(hovers) < 0.5
    await editor.finish(thread)
