"""The askpass helper, run as ssh runs it."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tunnelkit.link.openssh.askpass import Asker, AskpassServer


class Person:
    """Gives the prepared answers; remembers what was asked and shown."""

    def __init__(self) -> None:
        self.answers: list[str | None] = []
        self.asked: list[tuple[str, bool]] = []
        self.shown: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, question: str, echo: bool) -> str | None:
        self.asked.append((question, echo))
        return self.answers.pop(0)


@pytest.fixture
def person() -> Person:
    return Person()


@pytest.fixture
async def server(tmp_path: Path, person: Person) -> AsyncIterator[AskpassServer]:
    server = AskpassServer(tmp_path, person, notice=person.shown.put_nowait)
    await server.open()
    yield server
    await server.close()
    assert list(tmp_path.iterdir()) == []


async def start(asker: Asker, prompt: str, kind: str = "") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        asker.env["SSH_ASKPASS"],
        prompt,
        stdout=asyncio.subprocess.PIPE,
        env={**asker.env, "SSH_ASKPASS_PROMPT": kind},
    )


async def test_a_secret(server: AskpassServer, person: Person, tmp_path: Path) -> None:
    person.answers = ["a  s3cret, 'quoted'"]
    process = await start(server.asker("login"), "me@login's password: ")
    out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"a  s3cret, 'quoted'\n")
    assert person.asked == [("me@login's password: ", False)]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"askpass": 0o700, "askpass.s": 0o600}


@pytest.mark.parametrize(("answer", "status"), [("yes", 0), ("Y", 0), ("no", 1), (None, 1)])
async def test_confirm(
    server: AskpassServer, person: Person, answer: str | None, status: int
) -> None:
    """A refusal is safe to tell: ssh then goes on without that key."""
    person.answers = [answer]
    process = await start(server.asker("login"), "Allow use of key?", "confirm")
    await process.communicate()
    assert process.returncode == status
    assert person.asked == [("Allow use of key? (yes/no) ", True)]


async def test_no_answer_holds_ssh_until_its_owner_ends_it(
    server: AskpassServer, person: Person
) -> None:
    """An empty answer would be a failed attempt, and sites count those."""
    person.answers = [None]
    asker = server.asker("login")
    process = await start(asker, "Password: ")
    assert "Password:" in await asyncio.wait_for(asker.unanswered, 10)
    assert process.returncode is None
    process.kill()
    await process.wait()


async def test_a_notice_is_shown_until_ssh_ends_it(server: AskpassServer, person: Person) -> None:
    process = await start(server.asker("login"), "Touch your key", "none")
    assert await asyncio.wait_for(person.shown.get(), 10) == "Touch your key"
    assert process.returncode is None
    process.terminate()
    await process.wait()
    assert person.asked == []


async def test_one_question_at_a_time(server: AskpassServer, person: Person) -> None:
    person.answers = ["one", "two"]
    processes = [await start(server.asker(name), f"{name}? ") for name in ("a", "b")]
    outs = [(await process.communicate())[0] for process in processes]
    assert sorted(outs) == [b"one\n", b"two\n"]


async def test_strangers_get_nothing(server: AskpassServer, person: Person) -> None:
    asker = server.asker("login")
    asker.env["TUNNELKIT_ASKER"] = "someone else"
    process = await start(asker, "Password: ")
    out, _ = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert person.asked == []
