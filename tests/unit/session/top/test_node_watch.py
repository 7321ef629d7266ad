"""A node's probe as `tk top` reads it: whatever a hostile node sends, and however it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest

from tunnelkit.diagnosis.evidence.window import MOST_BYTES
from tunnelkit.errors import ConnectionFailed
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.top import node_watch
from tunnelkit.session.top.node_watch import NodeWatch
from tunnelkit.session.top.probe_stream import ProbeStream


def line(**more: object) -> bytes:
    whole = {"version": 1, "seconds": 2.0, "processes": [], **more}
    return json.dumps(whole, separators=(",", ":")).encode() + b"\n"


class Probe:
    """A probe that prints these pieces, and then is silent or ends."""

    def __init__(self, pieces: Iterator[bytes], *, ends: bool = True, words: str = "") -> None:
        self._pieces, self._ends, self._words = pieces, ends, words
        self.closed = False
        self.beats = 0

    async def read(self) -> bytes:
        piece = next(self._pieces, None)
        if piece is None and not self._ends:
            await asyncio.Event().wait()
        return piece or b""

    async def beat(self) -> None:
        self.beats += 1

    def why(self) -> str:
        return self._words

    async def close(self) -> None:
        self.closed = True


async def watched(probes: list[Probe | Exception], until: Callable[[NodeWatch], bool]) -> NodeWatch:
    """Watch until that is so; the probes are started one after another."""
    changed = asyncio.Event()
    left = list(probes)

    async def start(job_id: str, node: str) -> ProbeStream:
        one = left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    watch = NodeWatch(start, "7", "node1", changed.set)
    task = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(20):
            while not until(watch):
                changed.clear()
                await changed.wait()
    finally:
        await cancel_all(task)
    return watch


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_watch, "_AGAIN_S", 0.0)


async def test_windows_cut_anywhere() -> None:
    data = line() + line(whole=True, rounds=5)
    probe = Probe(iter([data[:7], data[7:90], data[90:]]), ends=False)
    watch = await watched([probe], lambda watch: watch.whole is not None)
    assert watch.newest is not None and watch.newest.node == "node1"
    assert watch.whole is not None and watch.whole.rounds == 5
    assert probe.closed


async def test_lines_that_are_no_window_are_left_out() -> None:
    junk = [b"Welcome to node1!\n", b"\xff\xfe\n", b"[]\n", b'{"version":1,"seconds":1e999}\n']
    probe = Probe(iter([*junk, line()]), ends=False)
    watch = await watched([probe], lambda watch: watch.newest is not None)
    assert watch.problem == ""


async def test_a_line_without_an_end_is_given_up() -> None:
    count = 0

    def endless() -> Iterator[bytes]:
        nonlocal count
        while True:
            count += 1
            yield b"x" * 65536

    watch = await watched([Probe(endless())], lambda watch: bool(watch.problem))
    assert "longer than the probe's" in watch.problem
    assert count <= MOST_BYTES // 65536 + 2


async def test_a_probe_that_ends_says_why_and_is_started_again() -> None:
    problems = []
    probes: list[Probe | Exception] = [
        Probe(iter([]), words="slurmstepd: error: x\nsrun: error: Unable to create step\n"),
        ConnectionFailed("login does not answer"),
        Probe(iter([]), words=""),
        Probe(iter([line()]), ends=False),
    ]

    def until(watch: NodeWatch) -> bool:
        problems.append(watch.problem)
        return watch.newest is not None

    watch = await watched(probes, until)
    assert problems[1:4] == [
        "srun: error: Unable to create step",
        "login does not answer",
        "the probe has ended",
    ]
    assert watch.problem == ""


async def test_a_node_that_is_silent_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_watch, "_SILENT_S", 0.05)
    probes: list[Probe | Exception] = [
        Probe(iter([line()]), ends=False), Probe(iter([]), ends=False),
    ]  # fmt: skip
    watch = await watched(probes, lambda watch: bool(watch.problem))
    assert (watch.newest, watch.problem) == (None, "no answer for 0 s")
