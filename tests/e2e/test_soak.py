"""F5 after F5, each at the moment the last run ended, some killed, some crashed: none is refused
or lost, and nothing grows. TK_SOAK=1000 for the long run; it prints its figures."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.tkrig import PROGRAM, Project, eventually, line_of
from tunnelkit.errors import DebugError

pytestmark = pytest.mark.slow

RUNS = int(os.environ.get("TK_SOAK", "80"))
#: What is allocated once is, by then.
WARM = min(RUNS // 2, 100)
STOP = line_of(PROGRAM, "total += step")
#: How the runs end, one after the other: mostly as programs do.
ENDS = ("finish", "finish", "killed", "finish", "crashed", "finish", "left", "finish", "_exit")


class Use(NamedTuple):
    """What a process holds."""

    fds: int
    rss_kib: int


def born(pid: int) -> str:
    """When it was started: with the pid, which may come again, this names a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def use(pid: int) -> Use:
    status = Path(f"/proc/{pid}/status").read_text()
    rss = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return Use(len(os.listdir(f"/proc/{pid}/fd")), int(rss.split()[1]))


@pytest.mark.timeout(120 + 3 * RUNS)
async def test_f5_after_f5_and_nothing_grows(project: Project) -> None:
    status = await project.up("node1", "--cpus", "2")
    await project.loop("python", "2.py")
    watched = {"session": int(status["pid"]), "agent": int(status["agent"]["pid"])}
    counts: dict[str, int] = {}
    seen, closing, before = set(), [], {}
    for number in range(RUNS):
        if number == WARM:
            await asyncio.gather(*closing)
            await project.all_loaded()
            before = await settled(project, watched)
        editor, thread, frame = await project.f5_to_stop(STOP)
        pid = int(await editor.evaluate("os.getpid()", frame))
        seen.add((pid, born(pid)))
        how = ENDS[number % len(ENDS)]
        counts[how] = counts.get(how, 0) + 1
        if how == "left":
            await editor.close()
            continue
        if how == "killed":
            os.kill(pid, signal.SIGKILL)
        elif how == "finish":
            await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
            await editor.request("continue", threadId=thread)
        else:
            code = "os.abort()" if how == "crashed" else "os._exit(7)"
            closing.append(asyncio.create_task(last_words(editor.evaluate(code, frame))))
        # The next one connects while this one is still connected.
        await editor.wait_event("terminated")
        closing.append(asyncio.create_task(editor.close()))
    await asyncio.gather(*closing)
    after = await settled(project, watched)
    print(f"{RUNS} F5 ({counts}): {len(seen)} processes; {before} -> {after}")
    assert len(seen) == RUNS
    for name, held in after.items():
        assert held.fds <= before[name].fds + 4, f"{name}: {before[name]} -> {held}"
        grown_kib = held.rss_kib - before[name].rss_kib
        assert grown_kib <= 2048 + 8 * (RUNS - WARM), f"{name}: {before[name]} -> {held}"


async def last_words(evaluating: object) -> None:
    try:
        await evaluating  # type: ignore[misc]
    except DebugError:
        pass


async def settled(project: Project, watched: dict[str, int]) -> dict[str, Use]:
    """What they hold once the last run's adapter is gone."""
    await eventually(
        lambda: (
            sum(
                "tunnelkit.debug.adapter.adapter_server" in p.argv
                for p in project.laptop_processes()
            )
            <= 4
        ),
        "the adapters of past runs are gone",
    )
    return {name: use(pid) for name, pid in watched.items()}
