"""The exception that a debuggee is stopped at, whatever it answers about that."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hostile import JSON, objects
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.shared_debuggee import RaisedException, SharedDebuggee
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.dap_framing import DapReader, frame


class FakeChannel:
    """Keeps all bytes that are written."""

    is_over = False

    def __init__(self) -> None:
        self.frames = DapReader()
        self.asked: list[Any] = []

    def write_soon(self, data: bytes) -> None:
        self.asked += [json.loads(body) for body in self.frames.feed(data)]


class Rank:
    """A debuggee that sends what a test says."""

    def __init__(self) -> None:
        self.channel = FakeChannel()
        self.raised: list[RaisedException] = []
        self.seen: list[object] = []
        channel = cast(Channel, self.channel)
        self.shared = SharedDebuggee(channel, on_raised=self.raised.append)
        self.shared.watch(self, lambda event: self.seen.append(event.get("event")))

    def sends(self, **message: object) -> None:
        self.shared.connection.from_debuggee(frame(json.dumps({"seq": 1, **message}).encode()))

    def event(self, name: str, **body: object) -> None:
        self.sends(type="event", event=name, body=body)

    async def stops(self, **body: object) -> None:
        self.event("stopped", **{"threadId": 1, "reason": "exception", **body})
        await asyncio.sleep(0)

    async def answers(self, body: object, *, success: object = True) -> None:
        """To all questions, until there are none."""
        while self.channel.asked:
            asked = self.channel.asked.pop(0)
            self.sends(
                type="response",
                request_seq=asked["seq"],
                command=asked["command"],
                success=success,
                body=body,
            )
            for _ in range(5):
                await asyncio.sleep(0)


def failing(file: str = "/remote/train.py", **more: object) -> Message:
    answer = {"frames": [[file, 4, "load"]], "held": "stopped", "failed": "ValueError", **more}
    return {"result": json.dumps(answer)}


async def test_an_uncaught_exception_is_known_until_the_program_runs_on() -> None:
    rank = Rank()
    await rank.stops(text="ValueError", description="bad\nrank" * 1_000)
    assert rank.shared.raised is None
    await rank.answers(failing())
    [found] = rank.raised
    assert rank.shared.raised is found and found.uncaught
    assert (found.type, found.place, len(found.text)) == ("ValueError", "train.py:4", 500)
    failure = found.failure(found.at_s + 74)
    assert failure is not None and failure.age_s == 74 and failure.summary == "ValueError: bad"
    assert rank.seen == ["stopped", "tkRaised"]
    rank.event("continued", threadId=1, allThreadsContinued=True)
    assert rank.shared.raised is None


async def test_a_rank_that_runs_on_before_it_has_answered_has_not_failed() -> None:
    rank = Rank()
    await rank.stops(text="ValueError")
    rank.event("continued", threadId=1, allThreadsContinued=True)
    await rank.answers(failing())
    assert not rank.raised and rank.shared.raised is None


async def test_a_rank_that_hangs_up_instead_is_given_up() -> None:
    rank = Rank()
    await rank.stops(text="ValueError")
    rank.shared.close()
    await asyncio.sleep(0)
    assert not rank.raised


async def test_the_exit_code_comes_with_the_end() -> None:
    rank = Rank()
    rank.event("exited", exitCode=3)
    assert not rank.seen
    rank.event("terminated")
    assert rank.seen == ["exited", "terminated"]


@pytest.mark.parametrize("success", [True, False])
async def test_an_answer_that_says_nothing_leaves_a_stop(success: bool) -> None:
    rank = Rank()
    await rank.stops(text="KeyError", description="'k'")
    await rank.answers({"result": "no"}, success=success)
    [found] = rank.raised
    assert (found.type, found.text, found.uncaught, found.place) == ("KeyError", "'k'", False, "")
    assert found.failure(0.0) is None


@given(
    objects(["threadId", "text", "description"]),
    objects(["result"]) | st.builds(failing, st.text(max_size=5), failed=JSON, frames=JSON) | JSON,
    JSON,
)
def test_whatever_it_answers_nothing_raises(stop: Message, body: object, success: object) -> None:
    async def run() -> None:
        rank = Rank()
        await rank.stops(**stop)
        await rank.answers(body, success=success)
        for found in rank.raised:
            assert isinstance(found.type, str) and len(found.type) <= 500 >= len(found.text)
            assert isinstance(found.place, str)

    asyncio.run(run())
