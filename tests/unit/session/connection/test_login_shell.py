"""The shell on the login host: a command in it does what it would do in a session of its own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from tunnelkit.errors import ConnectionFailed, TimeoutExpired
from tunnelkit.link.base import Link
from tunnelkit.model import Completed
from tunnelkit.session.agent.local_process import LocalStream, open_local_stream
from tunnelkit.session.connection import login_shell
from tunnelkit.session.connection.login_shell import LoginShell

SHELLS = [shell for shell in ("dash", "bash", "ksh", "zsh") if shutil.which(shell)]
WORDS = ["two words", "", "it's", '"$HOME" `id`', "new\nline", "*", "ümlaut", "\\n", "trailing\n"]


class LocalLogin:
    """A link whose login host is this machine. instead: what runs there in place of the shell."""

    name = "login"

    def __init__(self, shell: str, instead: str = "") -> None:
        self.shell, self.instead = shell, instead
        self.streams: list[LocalStream] = []

    async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> LocalStream:
        *_, script, name, mark = argv
        shell = shutil.which(self.shell) or "sh"
        stream = await open_local_stream([shell, "-c", self.instead or script, name, mark])
        self.streams.append(stream)
        return stream


@asynccontextmanager
async def started(login: LocalLogin) -> AsyncIterator[LoginShell]:
    shell = LoginShell(cast("Link", login))
    shell.start()
    try:
        yield shell
    finally:
        await shell.close()
        assert all(stream._process.returncode is not None for stream in login.streams)


@asynccontextmanager
async def ready(shell_name: str = "sh") -> AsyncIterator[LoginShell]:
    async with started(LocalLogin(shell_name)) as shell:
        async with asyncio.timeout(10):
            while await shell.run(["true"]) is None:
                await asyncio.sleep(0.01)
        yield shell


@pytest.mark.parametrize("name", SHELLS)
async def test_words_stdin_output_and_status_are_exact(name: str) -> None:
    async with ready(name) as shell:
        done = await shell.run(["printf", r"%s\0", *WORDS])
        assert done is not None
        assert done.stdout == b"".join(word.encode() + b"\0" for word in WORDS)
        for stdin in (b"a'b\n\n", b"\xff\xc3", "ü\\n%s".encode(), b"x" * 70_000, b""):
            assert await shell.run(["cat"], stdin=stdin) == Completed(0, stdin, b"")
        # What a command leaves of its stdin is not taken for the next command.
        assert await shell.run(["true"], stdin=b"4\nexit" * 20_000) == Completed(0, b"", b"")
        failed = await shell.run(["sh", "-c", "echo out; echo why >&2; exit 7"])
        assert failed == Completed(7, b"out\n", b"why")
        missing = await shell.run(["tk-no-such-program"])
        assert missing is not None and missing.exit_code == 127
        inside = await shell.run(["sh", "-c", "read -r x <&3 || echo none; cat"])
        assert inside is not None and inside.stdout == b"none\n", "it has not the shell's own stdin"


async def test_one_that_did_not_say_that_it_reads_gets_nothing() -> None:
    for instead in ("cat >/dev/null", "exit 1", 'printf "%s" "$1"; cat >/dev/null'):
        login = LocalLogin("sh", instead)
        async with started(login) as shell:
            while not login.streams:
                await asyncio.sleep(0)
            assert await shell.run(["true"]) is None


async def test_what_a_command_prints_is_not_taken_for_the_end_of_its_answer() -> None:
    async with ready() as shell:
        # The mark that other users see in the shell's words, and all that a command can know.
        seen = f"\n{shell._mark} 0\n\n{shell._mark}\n"
        assert await shell.run(["printf", "%s", seen]) == Completed(0, seen.encode(), b"")
        assert await shell.run(["sh", "-c", 'echo "$mark"']) == Completed(0, b"\n", b"")


async def test_a_link_without_a_session_to_give_leaves_all_to_the_link() -> None:
    class Refused(LocalLogin):
        async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> LocalStream:
            raise ConnectionFailed("no session")

    async with started(Refused("sh")) as shell:
        assert await shell.run(["true"]) is None


async def test_a_command_that_ends_the_shell_is_left_to_the_link() -> None:
    async with ready() as shell:
        assert await shell.run(["sh", "-c", "kill -9 0"]) is None
        assert await shell.run(["true"]) is None


async def test_a_busy_shell_is_left_alone_and_its_command_ends_it_by_its_limit() -> None:
    async with ready() as shell:
        first = asyncio.create_task(shell.run(["sleep", "1"], timeout_s=0.1))
        await asyncio.sleep(0)
        assert await shell.run(["true"]) is None
        with pytest.raises(TimeoutExpired, match=r"`sleep` on login took more than 0\.1 s"):
            await first
        assert await shell.run(["true"]) is None, "its answer may still come"


@pytest.mark.parametrize(
    "answer",
    [
        'printf "\\n%s evil\\n\\n%s\\n" "$mark" "$mark"',
        'printf "\\n%s 0\\n\\n%s\\nmore" "$mark" "$mark"',
        'printf "\\n%s 00000000000000000001\\n\\n%s\\n" "$mark" "$mark"',
        "head -c 100000 /dev/zero",
    ],
)
async def test_what_a_hostile_host_answers_has_a_form_and_a_limit(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_shell, "_MOST_BYTES", 50_000)
    login = LocalLogin("sh", f'printf "%s ready\\n" "$1"; read -r size mark; {answer}; sleep 1')
    async with started(login) as shell, asyncio.timeout(10):
        while shell._stream is None:
            await asyncio.sleep(0.01)
        assert await shell.run(["true"]) is None
        assert shell._stream is None


async def test_it_ends_when_idle_and_after_its_command_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ready() as shell:
        last = asyncio.create_task(shell.run(["echo", "done"]))
        await asyncio.sleep(0)
        shell.end()
        assert await last == Completed(0, b"done\n", b"")
        assert await shell.run(["true"]) is None
    monkeypatch.setattr(login_shell, "_IDLE_S", 0.05)
    async with ready() as shell, asyncio.timeout(10):
        assert shell._life is not None
        await shell._life
        assert await shell.run(["true"]) is None
