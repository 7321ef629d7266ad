"""One rank writes 200,000 lines while another is stepped: nobody waits, and nothing grows."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.support.console_rig import console_at_the_stop, looping, shown, typed
from tests.support.pty_terminal import Screen
from tests.support.tkrig import Project, eventually

#: The lines of a flood have 19 MB in all.
_MOST_GROWTH_KB = 48 << 10


def most_kb(pid: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmHWM:\s*(\d+) kB", status, re.M)
    assert found
    return int(found[1])


async def step_rank_1(screen: Screen, times: int) -> None:
    for _ in range(times):
        began = time.monotonic()
        await typed(screen, "cast ranks(1) n", r"(?:1 +)?ranks\.py:\d+ <module>")
        assert time.monotonic() - began < 10


def shown_lines(text: str) -> None:
    """See that a terminal has every line of the flood, in order, or names what it has skipped."""
    numbers = [int(one) for one in re.findall(r"^line (\d+) x+$", text, re.M)]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 199_999
    # The log on the node has 8 MB. A reader that is slower than the program misses the oldest.
    if len(numbers) < 200_000:
        assert re.search(r"\[tk\] \.\.\. \d+ pieces of output skipped \.\.\.$", text, re.M)
        assert sum(len(line) + 1 for line in text.splitlines() if line[:5] == "line ") > 8_000_000


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_rank_that_floods_while_another_is_stepped(project: Project) -> None:
    terminal = await looping(project, 2)
    (project.remote() / "flood0").touch()
    pid = (await project.status())["pid"]
    async with console_at_the_stop(project, 2) as screen:
        await step_rank_1(screen, 1)
        before_kb = most_kb(pid)
        # By a line of the console: what it prints is part of the answer.
        screen.type("cast ranks(0) flood()\r")
        await shown(screen, r"ranks\(0\) +1 rank$")
        await step_rank_1(screen, 3)
        await eventually(lambda: "line 0 xxx" in screen.text, "the answer of rank 0", 90)
        # By itself, into the terminal of `tk loop`.
        await typed(screen, "cast ranks(0) c", r"(?:0 +)?runs on$")
        await step_rank_1(screen, 5)
        await terminal.line(r"^rank 0 total 60$", 300)
        grown_kb = most_kb(pid) - before_kb
        assert grown_kb < _MOST_GROWTH_KB
        screen.type("q\r")
        assert await screen.ended() == 0
    assert len(screen.text) < 200_000
    shown_lines(terminal.text)
