"""The ways to an agent: the order, what is kept, what is a hard stop."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tunnelkit.errors import (
    ConnectionFailed,
    HostKeyError,
    TimeoutExpired,
    UnknownHostKey,
)
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.model import Completed
from tunnelkit.session.agent.install import Installed
from tunnelkit.session.agent.routes import HeadStart, LoginSshRoute, Route, Routes
from tunnelkit.session.runtime.event_log import EventLog

BASE = "/home/me/.cache/tunnelkit"
INSTALLED = Installed("/home/me", BASE, f"{BASE}/a.zip", "python3")


class FakeLink:
    """A link whose commands end as given."""

    name = "login"

    def __init__(self, *done: Completed, alive: bool = True) -> None:
        self.done, self.alive = list(done), alive
        self.ran: list[Sequence[str]] = []

    async def is_alive(self) -> bool:
        return self.alive

    async def run(self, argv: Sequence[str], **options: Any) -> Completed:
        self.ran.append(argv)
        return self.done.pop(0)

    async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> ByteStream:
        self.ran.append(argv)
        return cast(ByteStream, object())


class FakeWay:
    def __init__(self, name: str, *errors: ConnectionFailed | None) -> None:
        self.name = self.title = name
        self.errors = list(errors)
        self.asked = 0

    async def open(self) -> ByteStream:
        self.asked += 1
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return cast(ByteStream, self)


def make(link: FakeLink, *ways: FakeWay) -> tuple[Routes, list[str]]:
    said: list[str] = []
    return Routes(cast(Link, link), "node4", cast("list[Route]", list(ways)), said.append), said


async def test_the_first_that_works_is_kept() -> None:
    refused = ConnectionFailed("no", cause="Permission denied")
    first, second = FakeWay("ssh", refused), FakeWay("srun")
    ways, said = make(FakeLink(), first, second)
    assert ways.route is None
    await ways.open()
    await ways.open()
    assert (ways.route, first.asked, second.asked) == ("srun", 1, 2)
    assert said == ["node4 refuses ssh (Permission denied): entering by srun"]


async def test_each_route_is_recorded_with_its_error(tmp_path: Path) -> None:
    events = EventLog(tmp_path / "events.jsonl")
    refused = ConnectionFailed("no", cause="Permission denied", hint="add a key")
    ways = cast("list[Route]", [FakeWay("ssh", refused), FakeWay("srun")])
    routes = Routes(cast(Link, FakeLink()), "node4", ways, lambda text: None, events.add)
    await routes.open()
    assert [(one["kind"], one["text"], one["error"]) for one in events.recent] == [
        ("route", f"node4 by ssh: {refused.one_line()}", refused.to_json()),
        ("route", "node4 is reached by srun", None),
    ]


async def test_a_lost_login_connection_says_nothing_about_the_node() -> None:
    first = FakeWay("ssh", ConnectionFailed("lost"))
    ways, said = make(FakeLink(alive=False), first, FakeWay("srun"))
    with pytest.raises(ConnectionFailed):
        await ways.open()
    await ways.open()
    assert (ways.route, said) == ("ssh", [])


async def test_what_worked_once_is_not_given_up() -> None:
    first = FakeWay("ssh", None, ConnectionFailed("the node is busy"))
    ways, _ = make(FakeLink(), first, FakeWay("srun"))
    await ways.open()
    with pytest.raises(ConnectionFailed):
        await ways.open()
    await ways.open()
    assert ways.route == "ssh"


async def test_a_changed_host_key_is_a_hard_stop() -> None:
    other = FakeWay("srun")
    ways, _ = make(FakeLink(), FakeWay("ssh", HostKeyError("changed")), other)
    with pytest.raises(HostKeyError):
        await ways.open()
    assert other.asked == 0


async def test_a_node_that_strict_checking_refuses_is_entered_by_the_next_route() -> None:
    unknown = UnknownHostKey("the host key of node4 is not known", cause="strict checking")
    ways, said = make(FakeLink(), FakeWay("ssh", unknown), FakeWay("srun"))
    await ways.open()
    assert ways.route == "srun"
    assert said == ["node4 refuses ssh (strict checking): entering by srun"]
    alone, _ = make(FakeLink(), FakeWay("ssh", unknown))
    with pytest.raises(UnknownHostKey):
        await alone.open()


async def test_a_changed_host_key_on_a_later_route_is_a_hard_stop() -> None:
    first, last = FakeWay("ssh", UnknownHostKey("not known")), FakeWay("dial-in")
    ways, _ = make(FakeLink(), first, FakeWay("ssh-login", HostKeyError("changed")), last)
    with pytest.raises(HostKeyError, match="changed"):
        await ways.open()
    assert last.asked == 0


async def test_the_login_hosts_ssh_is_tried_once_and_asks_nobody() -> None:
    link = FakeLink(Completed(0, b"", b""))
    way = LoginSshRoute(cast(Link, link), INSTALLED, "node4", ["python3", "a b"])
    await way.open()
    await way.open()
    probe, first, second = link.ran
    assert probe[-3:] == ["--", "node4", "true"]
    assert first == second
    assert first[-2] == "node4"
    assert {"-oBatchMode=yes", "-oStrictHostKeyChecking=accept-new"} <= set(probe)
    assert any("/home/me/.cache/tunnelkit/known_hosts" in word for word in probe)


@pytest.mark.parametrize(
    ("said", "error", "transient"),
    [
        (b"me@node4: Permission denied (publickey).\n", ConnectionFailed, False),
        (b"ssh: connect to host node4 port 22: Connection timed out\n", ConnectionFailed, True),
        (b"ssh: connect to host node4 port 22: No route to host\n", ConnectionFailed, True),
        (b"Connection closed by 10.1.0.4 port 22\n", ConnectionFailed, True),
        (b"@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\n", HostKeyError, False),
        (b"Host key verification failed.\n", HostKeyError, False),
    ],
)
async def test_how_the_login_hosts_ssh_fails(
    said: bytes, error: type[Exception], transient: bool
) -> None:
    way = LoginSshRoute(cast(Link, FakeLink(Completed(255, b"", said))), INSTALLED, "node4", ["x"])
    with pytest.raises(ConnectionFailed) as caught:
        await way.open()
    assert type(caught.value) is error
    assert caught.value.cause and caught.value.transient is transient


async def test_a_login_hosts_ssh_that_takes_too_long_is_tried_again() -> None:
    class Slow(FakeLink):
        async def run(self, argv: Sequence[str], **options: Any) -> Completed:
            raise TimeoutExpired("`ssh` on login took more than 30 s", transient=True)

    with pytest.raises(ConnectionFailed, match="does not lead to node4") as caught:
        await LoginSshRoute(cast(Link, Slow()), INSTALLED, "node4", ["x"]).open()
    assert caught.value.transient and "30 s" in (caught.value.cause or "")


class Said:
    """A stream that says `text` and ends with `status`."""

    def __init__(self, text: bytes, status: int) -> None:
        self._status = status
        ours, theirs = socket.socketpair()
        theirs.sendall(text)
        theirs.close()
        ours.setblocking(False)
        self.sock = ours

    def fileno(self) -> int:
        return self.sock.fileno()

    async def wait(self) -> int:
        return self._status

    def diagnosis(self) -> str:
        return "no agent"

    async def close(self) -> None:
        self.sock.close()


class SayingWay(FakeWay):
    def __init__(self, text: bytes, status: int = 0) -> None:
        super().__init__("ssh")
        self.stream = Said(text, status)

    async def open(self) -> ByteStream:
        await super().open()
        return cast(ByteStream, self.stream)


def head(better: FakeWay, quick: SayingWay | None = None) -> HeadStart:
    async def enter() -> ByteStream:
        assert quick is not None
        return await quick.open()

    return HeadStart("srun", enter, better)


async def test_nothing_is_sent_to_a_step_before_it_has_the_agent() -> None:
    """Its srun may outlive it: with a hello in its stdin it would take the wire hours later."""
    routes, _ = make(FakeLink(), FakeWay("ssh"), FakeWay("srun"))
    there, not_there = SayingWay(b"tk-reached\n"), SayingWay(b"", 66)
    stream = await routes.enter(head(FakeWay("ssh"), there))
    assert stream.fileno() == there.stream.fileno()
    await stream.close()
    with pytest.raises(ConnectionFailed, match="can't be reached"):
        await routes.enter(head(FakeWay("ssh"), not_there))
    assert not_there.stream.sock.fileno() == -1


async def test_a_better_route_to_a_node_without_an_agent_yet_is_kept() -> None:
    """A prologue takes its time: that says nothing about ssh."""
    better, first, second = SayingWay(b"", 66), FakeWay("ssh"), FakeWay("srun")
    routes, said = make(FakeLink(), first, second)
    assert await routes.open_better(head(better)) is None
    assert (better.stream.sock.fileno(), said, routes.settled.is_set()) == (-1, [], True)
    await routes.open()
    assert (routes.route, first.asked, second.asked) == ("ssh", 1, 0)


async def test_a_better_route_that_misses_an_agent_that_is_there_is_given_up() -> None:
    """ssh may enter the node outside the job's container: a later link would go there, too."""
    better, first, second = SayingWay(b"", 66), FakeWay("ssh"), FakeWay("srun")
    routes, said = make(FakeLink(), first, second)
    routes.entered(head(better))
    assert await routes.open_better(head(better)) is None
    assert said == ["ssh does not lead to the agent on node4 (no agent): entering by srun"]
    assert await routes.open_better(head(better)) is None  # not asked again
    await routes.open()
    assert (routes.route, better.asked, first.asked, second.asked) == ("srun", 1, 0, 1)


async def test_the_better_route_counts_once_it_has_reached_the_agent() -> None:
    better = SayingWay(b"Welcome!\ntk-reached\n")
    routes, said = make(FakeLink(), FakeWay("ssh"), FakeWay("srun"))
    routes.entered(head(better))
    assert (routes.route, routes.settled.is_set()) == ("srun", True)
    assert await routes.open_better(head(better)) is cast(ByteStream, better.stream)
    assert (routes.route, routes.settled.is_set(), said) == ("ssh", True, [])
    better.stream.sock.close()


@pytest.mark.parametrize("alive", [True, False])
async def test_a_better_route_that_ssh_refuses_is_given_up(alive: bool) -> None:
    better = SayingWay(b"tk-rea", 255)
    second = FakeWay("srun")
    routes, said = make(FakeLink(alive=alive), FakeWay("ssh"), second)
    routes.entered(head(better))
    if not alive:
        with pytest.raises(ConnectionFailed):
            await routes.open_better(head(better))
        assert (routes.settled.is_set(), said) == (True, [])
        return
    assert await routes.open_better(head(better)) is None
    assert better.stream.sock.fileno() == -1
    assert said == ["node4 refuses ssh (no agent): entering by srun"]
    await routes.open()
    assert (routes.route, second.asked) == ("srun", 1)


async def test_a_route_that_was_only_begun_may_still_be_given_up() -> None:
    refused = ConnectionFailed("no", cause="Permission denied")
    routes, _ = make(FakeLink(), FakeWay("ssh", refused), FakeWay("srun"))
    routes.entered(head(FakeWay("ssh")))
    await routes.open()
    assert routes.route == "srun"
