"""Lines of a script, given to a console: what is waited for before the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tunnelkit.cli.views import console_shell
from tunnelkit.cli.views.console_shell import ConsoleShell
from tunnelkit.debug.console.console import Console
from tunnelkit.debug.dap.messages import parse
from tunnelkit.mux.dap_framing import DapReader


class Ranks:
    """Two ranks that stand, and the console over them. They grant all requests."""

    is_over = False

    def __init__(self) -> None:
        self.shell = ConsoleShell(Console(local_source=lambda path: None), self._show)
        self.shell._channel = cast(Any, self)
        self.lines: list[str] = []
        entries = [
            {"rank": rank, "node": "n", "local": rank, "pid": 10 + rank, "state": "stopped"}
            | {"stops": [_stop("entry")]}
            for rank in (0, 1)
        ]
        self._take(
            {"type": "roster", "loop": 1, "command": "torchrun t.py", "generation": 1}
            | {"world_size": 2, "expected": 2, "ranked": True, "ranks": entries}
        )

    def write_nowait(self, data: bytes) -> None:
        for body in DapReader().feed(data):
            for ask in parse(body).get("asks", ()):  # type: ignore[attr-defined]
                answer = {"id": ask["id"], "rank": ask["rank"], "success": True, "message": ""}
                self._later({"type": "answer", "body": {}, **answer})

    def event(self, rank: int, event: str, body: dict[str, object]) -> None:
        self._take({"type": "event", "rank": rank, "event": event, "body": body})

    def _show(self, lines: Sequence[str]) -> None:
        self.lines += lines

    def _later(self, message: dict[str, object]) -> None:
        asyncio.get_running_loop().call_soon(self._take, message)

    def _take(self, message: dict[str, object]) -> None:
        self.shell._apply(self.shell.core.message(cast(Any, message), 100.0))


def _stop(reason: str) -> dict[str, object]:
    return {"reason": reason, "threadId": 1, "allThreadsStopped": True}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_shell, "_STOP_S", 0.05)


async def test_a_program_is_followed_until_one_rank_stands_and_the_others_had_their_time() -> None:
    """They may wait for it in a collective."""
    ranks = Ranks()
    following = asyncio.create_task(ranks.shell.follow("c"))
    await ranks.shell.until(lambda: ranks.shell.core.moving and not ranks.shell.core.busy)
    # None stands: that is waited for without a limit.
    await asyncio.wait([following], timeout=0.2)
    assert not following.done()
    ranks.event(0, "stopped", _stop("breakpoint"))
    await asyncio.wait_for(following, 5)
    assert ranks.shell.core.moving
    # A question lets nothing run, so nothing is waited for.
    await asyncio.wait_for(ranks.shell.follow("list"), 5)
    # The last line is followed to the end of the program, although a rank ran before.
    following = asyncio.create_task(ranks.shell.follow("c"))
    await ranks.shell.until(lambda: not ranks.shell.core.standing and not ranks.shell.core.busy)
    ranks.event(1, "terminated", {})
    await asyncio.wait([following], timeout=0.2)
    assert not following.done()
    ranks.event(0, "terminated", {})
    await asyncio.wait_for(following, 5)
