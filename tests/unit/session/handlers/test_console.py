"""A console's ranks, one of which hangs, is lost or refuses while the console joins them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.unit.session.handlers.test_many_ranks import SimRanks, pipes
from tunnelkit.debug.dap.messages import Message, dump, objects, parse, text
from tunnelkit.mux.dap_framing import DapReader, frame
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.debugging import console_rank
from tunnelkit.session.handlers.console import ConsoleServer

_LIMIT_S = 10.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that hangs is waited for no longer than a test needs."""
    monkeypatch.setattr(console_rank, "_PATIENCE_S", 0.2)


def adopted(size: int, held: str = "") -> SimRanks:
    """Ranks of a killed session: this one has not begun them."""
    sim = SimRanks(size, lambda rank, expression: str(rank), held=held)
    for target in sim.targets:
        target.asked.connection.configured = False
    return sim


class Hung:
    """A rank that does nothing with what it is sent, until it goes on. after: it answers so many
    requests first."""

    def __init__(self, sim: SimRanks, number: int, after: int = 0) -> None:
        self.sent: list[bytes] = []
        self._channel = sim.channels[number]
        self._write, self._after = self._channel.write_soon, after
        self._channel.write_soon = self._take  # type: ignore[method-assign]

    def _take(self, data: bytes) -> None:
        self._after -= 1
        if self._after >= 0:
            self._write(data)
        else:
            self.sent.append(data)

    @property
    def asked(self) -> list[str]:
        """The commands that it has not answered."""
        return [text(parse(one).get("command")) for one in DapReader().feed(b"".join(self.sent))]

    def go_on(self) -> None:
        """Answer all."""
        self._channel.write_soon = self._write  # type: ignore[method-assign]
        for data in self.sent:
            self._write(data)


class Client:
    """A console's end of the stream from the session."""

    def __init__(self, sim: SimRanks) -> None:
        self.states: dict[int, str] = {}
        self.rosters = 0
        self.answers: list[Message] = []
        self.near, far = pipes()
        self.server = ConsoleServer(sim.session, sim.loop, far)  # type: ignore[arg-type]
        self._frames = DapReader()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Read until the condition holds."""
        async with asyncio.timeout(_LIMIT_S):
            while not condition():
                for body in self._frames.feed(await self.near.read()):
                    self._message(parse(body))

    async def has(self, **states: str) -> None:
        """Read until these are the ranks: `r0="running"`."""
        wanted = {int(name[1:]): state for name, state in states.items()}
        await self.until(lambda: self.states == wanted)

    async def ask(self, rank: int, command: str) -> Message:
        """Ask a rank; return the answer."""
        one = {"id": 1, "rank": rank, "command": command, "arguments": {}}
        self.near.write_nowait(frame(dump({"type": "ask", "asks": [one]})))
        before = len(self.answers)
        await self.until(lambda: len(self.answers) > before)
        return self.answers[-1]

    def _message(self, message: Message) -> None:
        if message["type"] == "answer":
            self.answers.append(message)
        elif message["type"] == "roster":
            self.rosters += 1
            ranks = objects(message["ranks"])
            self.states = {int(str(one["rank"])): text(one["state"]) for one in ranks}


@asynccontextmanager
async def console(sim: SimRanks) -> AsyncIterator[Client]:
    client = Client(sim)
    serving = asyncio.create_task(client.server.run())
    try:
        yield client
    finally:
        client.near.close()
        await cancel_all(serving)


def dies(sim: SimRanks, number: int) -> None:
    """Its connection ends, as a target notes it."""
    target = sim.targets[number]
    target.asked.close()
    target.asked = None


async def test_a_rank_that_hangs_hides_no_other() -> None:
    sim = adopted(2)
    hung = Hung(sim, 1)
    async with console(sim) as client:
        await client.has(r0="running", r1="running")
        assert client.rosters == 1
        assert (await client.ask(0, "evaluate"))["success"] is True
        # It would begin, and not have been asked how it is.
        assert hung.asked == ["evaluate"]
        # One that comes later is there at once, too.
        late = adopted(3)
        sim.targets.append(late.targets[2])
        sim.run.targets.append(late.targets[2])
        sim.wake()
        await client.has(r0="running", r1="running", r2="running")


@pytest.mark.parametrize("held", ["client", "stopped"])
async def test_a_rank_that_goes_on_is_taken(held: str) -> None:
    sim = adopted(2, held)
    hung = Hung(sim, 1)
    state = "waiting" if held == "client" else "running"
    async with console(sim) as client:
        await client.has(r0=state, r1="running")
        if held == "stopped":
            # The agent tells again who stands.
            done = sim.ranks[1].answer

            def answer(request: Message) -> Message:
                if request.get("command") == "configurationDone":
                    sim.stop(1)
                return done(request)

            sim.ranks[1].answer = answer  # type: ignore[method-assign]
        hung.go_on()
        await client.has(r0=state, r1="waiting" if held == "client" else "stopped")
    begun = "configurationDone" in sim.ranks[1].asked
    assert begun is (held == "stopped")


async def test_a_rank_that_answers_once_and_hangs_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tunnelkit.session.handlers.console.JOIN_S", 0.2)
    sim = adopted(2)
    hung = Hung(sim, 1, after=1)
    async with console(sim) as client:
        await client.has(r0="running", r1="running")
        async with asyncio.timeout(_LIMIT_S):
            while hung.asked != ["initialize"]:
                await asyncio.sleep(0)
        hung.go_on()
        async with asyncio.timeout(_LIMIT_S):
            while "configurationDone" not in sim.ranks[1].asked:
                await asyncio.sleep(0)


@pytest.mark.parametrize("answers", [0, 1])
async def test_a_rank_that_is_lost_meanwhile_has_ended_alone(answers: int) -> None:
    sim = adopted(2)
    hung = Hung(sim, 1, after=answers)
    async with console(sim) as client:
        async with asyncio.timeout(_LIMIT_S):
            while not hung.sent:
                await asyncio.sleep(0)
        dies(sim, 1)
        await client.has(r0="running", r1="ended")
        assert (await client.ask(0, "evaluate"))["success"] is True
        answer = await client.ask(1, "evaluate")
        assert (answer["success"], answer.get("lost")) == (False, True)


async def test_a_rank_that_is_lost_after_it_was_shown_has_ended() -> None:
    sim = adopted(2)
    Hung(sim, 1)
    async with console(sim) as client:
        await client.has(r0="running", r1="running")
        dies(sim, 1)
        await client.has(r0="running", r1="ended")


async def test_a_debugger_that_refuses_says_so_when_its_rank_is_asked() -> None:
    sim = adopted(2)
    done = sim.ranks[1].answer

    def refuse(request: Message) -> Message:
        answer = done(request)
        no = request.get("command") == "attach"
        return {**answer, "success": False, "message": "no"} if no else answer

    sim.ranks[1].answer = refuse  # type: ignore[method-assign]
    async with console(sim) as client:
        await client.has(r0="running", r1="running")
        assert (await client.ask(0, "evaluate"))["success"] is True
        answer = await client.ask(1, "evaluate")
        assert answer["success"] is False
        assert "the debugger refuses the console: attach: no" in text(answer["message"])
