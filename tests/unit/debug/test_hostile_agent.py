"""An agent that lies about its loops: the loop goes on or is told as ended; nothing raises."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.debug.test_loop_close import Agent, Pipes
from tests.unit.hostile import JSON, objects
from tests.unit.mux.test_hostile_peer import run
from tunnelkit.cli.views.loop import LoopView
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.loop_agents.base import OneAgent
from tunnelkit.mux.loop_records import EVENT, STDOUT, LoopRecord
from tunnelkit.session.debugging.loop_log_file import LoopLogFile
from tunnelkit.session.debugging.loop_messages import event_text
from tunnelkit.session.debugging.loops import SessionLoop

_NAMES = [
    *("starting", "armed", "attached", "kept", "ended", "waiting", "stopped", "standby", "rank"),
    *("imported", "preloading", "fork-server", "stale", "no-standby", "no-relay", "node-lost"),
    *("skipped", "loop", "lost", "notice", "time-limit", "pending", "failed"),
]
_FIELDS = [
    *("time", "generation", "pid", "ahead", "why", "code", "signal", "duration_s", "rank", "node"),
    *("wanted", "modules", "imports", "module", "delay_s", "text", "error", "where", "notes"),
    *("peak_rss_bytes", "rss_bytes", "left_s", "port", "client", "records"),
]
EVENTS = st.builds(
    lambda name, fields: {**fields, "event": name},
    st.sampled_from(_NAMES) | JSON,
    objects(_FIELDS),
)
_HEADERS = objects(["generation", "pid", "node", "rank", "ancestors"]) | st.fixed_dictionaries(
    {"generation": st.integers(0, 3), "rank": st.lists(st.integers(0, 3) | JSON, max_size=4)}
)
_NOWHERE = Path("/nonexistent/loop.log")
_INF = {"event": "starting", "generation": float("inf")}


@given(EVENTS)
@example({"event": "waiting"})
@example({"event": "starting", "time": 1e300})
@example({"event": "preloading", "modules": 3})
def test_every_event_has_words(event: dict[str, Any]) -> None:
    run(_shown(event))


async def _shown(event: dict[str, Any]) -> None:
    assert isinstance(event_text(event), str)
    view = LoopView()
    view.show(LoopRecord(EVENT, 0, json.dumps(event).encode()))


@given(st.lists(EVENTS, max_size=6), st.lists(_HEADERS, max_size=4), st.booleans())
@example([_INF], [], False)
@example([{"event": "starting", "generation": 1, "time": 1e300}], [], True)
@example([], [{"generation": 1, "rank": [1, 2, float("inf")]}], True)
def test_a_loop_lives_or_is_told_as_ended(
    events: list[Any], headers: list[dict[str, Any]], ranked: bool
) -> None:
    run(_followed(events, headers, ranked))


async def _followed(events: list[Any], headers: list[dict[str, Any]], ranked: bool) -> None:
    adapters, agent, port = Pipes(), Agent(), EditorPort(0)
    port.open()
    records: list[LoopRecord] = []
    log = LoopLogFile(_NOWHERE)

    def on_record(record: LoopRecord) -> None:
        log.write(record)
        records.append(record)

    loop = DebugLoop(OneAgent(agent), port, adapters, on_record=on_record)
    await loop.start({"editor_port": port.port})
    loop.info["ranks"] = {"only": None} if ranked else None
    for event in events:
        assert agent.log is not None
        agent.log.received(LoopRecord(EVENT, 0, json.dumps(event).encode()).encode())
        await asyncio.sleep(0)
    for header in headers:
        channel = agent.mux.open({})
        loop.debuggee(channel, header)
    agent.tell("attached", 99)
    for _ in range(20):
        await asyncio.sleep(0)
    if loop.state == "stopped":
        assert any(record.event().get("event") in ("notice", "stopped") for record in records)
    else:
        assert records[-1].event()["generation"] == 99, "the reader has died, and nobody knows"
    await loop.close()
    await port.close()
    assert adapters.left() == 0
    adapters.close_all()


async def test_what_a_terminal_is_shown_of_the_past_is_bounded_in_bytes() -> None:
    port = EditorPort(0)
    loop = SessionLoop(DebugLoop(OneAgent(Agent()), port, Pipes()), port, own_port=False)
    for number in range(30):
        loop.record(LoopRecord(STDOUT, number, b"x" * (4 << 20)))
    assert sum(len(one.payload) for one in loop.history) <= 20 << 20
    assert loop.history[-1].number == 29
