"""The forwards of a session whose link loses one, and can't put it back at once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.support.ports import free_port
from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.base import Link
from tunnelkit.model import LocalForward
from tunnelkit.session.agent.client import AgentGone
from tunnelkit.session.forwards import SessionForwards


class FlakyLink:
    """A link that keeps its forwards in mind while the node is `away`."""

    def __init__(self) -> None:
        self.away = False
        self.wanted: set[LocalForward] = set()

    async def forward(self, forward: LocalForward, *, node: str | None) -> None:
        if self.away:
            raise ConnectionFailed("node1 is away", transient=True)
        self.wanted.add(forward)

    async def cancel_forward(self, forward: LocalForward, *, node: str | None) -> None:
        self.wanted.discard(forward)

    def forward_route(self, forward: LocalForward, *, node: str | None) -> str | None:
        return "chain" if forward in self.wanted and not self.away else None


class Agent:
    """An agent on whose node nobody listens."""

    async def call(self, method: str, **params: object) -> Any:
        assert method == "tcp.listening"
        return False


async def opened() -> tuple[SessionForwards, FlakyLink, LocalForward]:
    link, agent = FlakyLink(), cast(Any, Agent())
    forwards = SessionForwards(cast(Link, link), lambda: agent, lambda: "node1", direct)
    forward = LocalForward(free_port(), "localhost", 1)
    assert (await forwards.add(forward))["route"] == "chain"
    return forwards, link, forward


async def direct() -> bool:
    return True


async def test_the_list_shows_the_route_of_now() -> None:
    forwards, link, _ = await opened()
    link.away = True
    assert [one["route"] for one in forwards.list()] == ["lost"]
    link.away = False
    assert [one["route"] for one in forwards.list()] == ["chain"]


@pytest.mark.parametrize("wire", [False, True])
async def test_asked_for_again_a_lost_one_goes_by_the_wire(wire: bool) -> None:
    forwards, link, forward = await opened()
    link.away = True
    assert (await forwards.add(forward, wire=wire))["route"] == "wire"
    assert not link.wanted, "the link would want the same port"
    assert await forwards.take() == ((forward, wire),)


async def test_asked_for_again_a_lost_one_is_opened_where_the_node_is_back() -> None:
    forwards, link, forward = await opened()
    link.wanted.clear()
    assert [one["route"] for one in forwards.list()] == ["lost"]
    assert (await forwards.add(forward))["route"] == "chain"
    assert link.wanted == {forward}


async def test_what_another_lost_node_did_not_get_waits_for_the_next_one() -> None:
    class Gone:
        async def call(self, method: str, **params: object) -> Any:
            raise AgentGone("the agent on the node has ended")

    link, agent = FlakyLink(), cast(Any, Gone())
    forwards = SessionForwards(cast(Link, link), lambda: agent, lambda: "node1", direct)
    port = free_port()
    wanted = (
        (LocalForward(port, "localhost", port), False),  # the agent is asked where that leads
        (LocalForward(free_port(), "localhost", 1), True),
    )
    assert await forwards.put_back(wanted) == (), "nothing is lost yet"
    assert await forwards.take() == wanted
    assert await forwards.take() == ()
