"""What a loop's terminal says of standby, preloading and slow imports: little, and once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tunnelkit.cli.views import loop as loopview
from tunnelkit.cli.views.loop import LoopView
from tunnelkit.cli.views.status import lines
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload


class Screen:
    """A view, and the lines that it has printed since they were last asked for."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.view = LoopView()
        self._capsys = capsys

    def show(self, name: str, **fields: Any) -> list[str]:
        self.view.show(LoopRecord(EVENT, 0, event_payload(name, **fields)))
        return self.lines()

    def lines(self) -> list[str]:
        return [line.removeprefix("[tk] ") for line in self._capsys.readouterr().err.splitlines()]


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Screen:
    return Screen(capsys)


def test_what_works_without_being_asked_for_is_not_shown(screen: Screen) -> None:
    assert screen.show("standby", pid=7, rss_bytes=1) == []
    assert screen.show("fork-server", pid=7, imports={}, rss_bytes=2**20) == []


def test_where_a_run_starts(screen: Screen) -> None:
    [line] = screen.show("starting", pid=7, generation=1)
    assert line.endswith("starting (pid 7 here)")
    screen.view.where = {"node": "node1"}
    [line] = screen.show("starting", pid=8, generation=2)
    assert line.endswith("starting (pid 8 on node1)")


def test_preloading(screen: Screen) -> None:
    assert screen.show("preloading", modules=["torch", "numpy"]) == [
        "reading torch, numpy once for all runs ..."
    ]
    imports = {"torch": 1.93, "numpy": 0.04}
    assert screen.show("fork-server", imports=imports, rss_bytes=300 * 2**20) == [
        "read torch 1.9 s, numpy 0.0 s (300 MiB): each F5 starts there"
    ]
    assert screen.show("stale", why="/x/torch.py has changed since it was imported") == [
        "/x/torch.py has changed since it was imported: reading it again"
    ]
    assert screen.show("no-standby", why="an import has started a thread (x)") == [
        "no run stands by: an import has started a thread (x); each run imports for itself"
    ]


def test_why_none_stands_by(screen: Screen) -> None:
    assert screen.show("no-standby", why="the fork failed") == ["no run stands by: the fork failed"]
    ended = {"signal": "SIGKILL", "why": "ended while it stood by", "generation": 2}
    assert screen.show("ended", ahead=True, **ended) == [
        "run 2, which stood by, ended: "
        "signal SIGKILL (ended while it stood by) after 0.0 s, peak 0 MiB"
    ]


def test_slow_imports_are_told_once_with_the_flag_to_type(screen: Screen) -> None:
    async def runs() -> list[str]:
        screen.show("imported", module="pandas", duration_s=0.81)
        screen.show("imported", module="torch", duration_s=3.2)
        told = screen.show("ended", generation=1, code=0)
        screen.show("imported", module="torch", duration_s=3.2)
        return [*told, *screen.show("ended", generation=2, code=0)]

    told = asyncio.run(runs())
    assert told[0] == (
        "imports took 4.0 s (torch 3.2 s, pandas 0.8 s): "
        "tk loop --preload torch,pandas makes the next F5 skip them"
    )
    assert sum("preload" in line for line in told) == 1


def test_imports_of_two_runs_are_not_added_up(screen: Screen) -> None:
    async def runs() -> None:
        for number in range(5):
            screen.show("starting", generation=number, time=0.0)
            screen.show("imported", module=f"m{number}", duration_s=1.9)
            assert not any("imports" in line for line in screen.show("ended", generation=number))

    asyncio.run(runs())


def test_they_are_told_while_a_run_goes_on_and_name_what_is_preloaded_already(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopview, "_IMPORTS_OVER_S", 0.0)

    async def run() -> list[str]:
        screen.show("preloading", modules=["numpy"])
        screen.show("imported", module="torch", duration_s=2.5)
        await asyncio.sleep(0)
        while not (told := screen.lines()):
            await asyncio.sleep(0.001)
        return told

    assert asyncio.run(asyncio.wait_for(run(), 10)) == [
        "imports took 2.5 s (torch 2.5 s): "
        "tk loop --preload numpy,torch makes the next F5 skip them"
    ]


def status(standby: dict[str, Any] | None) -> list[str]:
    loop = {"generation": 3, "state": "attached", "editor": None, "port": 40056, "command": "x"}
    whole: dict[str, Any] = dict.fromkeys(("job", "agent", "mirror", "detail"))
    whole |= {"state": "ready", "project": "/p", "login": "l", "forwards": []}
    return lines({**whole, "loops": [{**loop, "standby": standby}]})


def test_status_tells_what_the_one_costs_that_stands_by() -> None:
    costs = {"rss_bytes": 45 * 2**20, "share_bytes": 12 * 2**20 + 1}
    assert status({"generation": 4, "pid": 77, **costs})[-1] == (
        "standby  the next run (pid 77): 45 MiB, its share of that 12 MiB"
    )
    assert status({"pid": 77})[-1] == "standby  the next run (pid 77)"
    assert status(None)[-1].startswith("loop ")


def test_ranks_are_told_once_all_of_them_wait(screen: Screen) -> None:
    screen.show("starting", generation=1, pid=1)
    nodes = {0: "node1", 1: "node1", 3: "node2"}
    for rank, node in nodes.items():
        assert screen.show("rank", generation=1, rank=rank, wanted=4, node=node) == []
    assert screen.show("rank", generation=1, rank=2, wanted=4, node="node1") == [
        "run 1 · all 4 ranks wait (node1: 0-2, node2: 3)"
    ]
    # The next run begins anew.
    screen.show("starting", generation=2, pid=2)
    assert screen.show("rank", generation=2, rank=0, wanted=4, node="node1") == []


def test_ranks_that_their_launcher_starts_again_are_told_once_all_are_back(screen: Screen) -> None:
    printed = [
        screen.show("rank", generation=1, rank=rank, wanted=3, node="n1", pid=first + rank)
        for first in (100, 200, 300)
        for rank in (1, 0, 2)
    ]
    assert printed == [[], [], ["run 1 · all 3 ranks wait (n1: 0-2)"]] * 3


def test_ranks_out_of_reach_are_told(screen: Screen) -> None:
    (line,) = screen.show("no-relay", why="srun: error: no")
    assert line == "ranks on other nodes run free, not debugged: srun: error: no"
    (line,) = screen.show("node-lost", node="node2", why="it had to be killed")
    assert "node2 is lost" in line


_EVIL = "x\n\x1b[31mtk:\x1b[0m ready\r\x1b[2J\u202ey; touch it-ran"
_NAMES = (
    *("loop", "starting", "armed", "rank", "no-relay", "node-lost", "part-ended", "attached"),
    *("kept", "rank-kept", "ended", "imported", "preloading", "fork-server", "stale", "waiting"),
    *("no-standby", "notice", "time-limit", "lost", "skipped", _EVIL),
)


@pytest.mark.parametrize("name", _NAMES)
def test_no_text_of_a_node_begins_a_line_or_is_obeyed(screen: Screen, name: str) -> None:
    fields = dict.fromkeys(
        ("why", "node", "client", "error", "where", "text", "reason", "signal", "port", "pid"),
        _EVIL,
    )
    more: dict[str, Any] = {
        **fields, "generation": 1, "rank": 0, "wanted": 2, "notes": [_EVIL], "modules": [_EVIL],
        "imports": {_EVIL: 9.0}, "module": _EVIL, "duration_s": 9.0, "delay_s": 1.0,
        "rss_bytes": 1 << 30,
    }  # fmt: skip
    screen.show("rank", **{**more, "rank": 1})
    lines = [*screen.show(name, **more), *screen.show("ended", **more)]
    assert lines
    for line in lines:
        assert line.isprintable() and not line.startswith("tk:"), line
        assert "--preload" not in line
