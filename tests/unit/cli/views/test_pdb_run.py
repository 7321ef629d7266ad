"""The output of a program under `tk pdb`: a console writes to the same terminal."""

from __future__ import annotations

import asyncio

import pytest

from tunnelkit.cli.views.pdb_run import PdbRun
from tunnelkit.mux.loop_records import STDOUT, LoopRecord


class Pieces:
    """A channel that brings these pieces of output, and ends."""

    def __init__(self, *pieces: bytes) -> None:
        self._records = [
            LoopRecord(STDOUT, number, piece).encode() for number, piece in enumerate(pieces)
        ]
        self.goes_on = asyncio.Event()

    async def read(self) -> bytes:
        if len(self._records) == 1:
            await self.goes_on.wait()
        return self._records.pop(0) if self._records else b""

    async def closed(self) -> None:
        return None


async def shown(run: PdbRun, channel: Pieces, *, console: str) -> None:
    """Read the output; before its last piece the console says something."""
    reading = asyncio.create_task(run.read(channel))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    print(console)
    channel.goes_on.set()
    await reading


async def test_a_console_does_not_write_into_an_unfinished_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    channel = Pieces(b"one\nbegun", " é\nend".encode())
    await shown(PdbRun(hold_s=60.0), channel, console="runs on")
    assert capsys.readouterr().out == "one\nruns on\nbegun é\nend"


async def test_a_question_is_shown_after_a_moment(capsys: pytest.CaptureFixture[str]) -> None:
    channel = Pieces(b"your name: ", b"Ada\n")
    reading = asyncio.create_task(PdbRun(hold_s=0.01).read(channel))  # type: ignore[arg-type]
    seen = ""
    async with asyncio.timeout(10):
        while not seen:
            await asyncio.sleep(0.005)
            seen = capsys.readouterr().out
    assert seen == "your name: "
    channel.goes_on.set()
    await reading
    assert capsys.readouterr().out == "Ada\n"


async def test_a_script_gets_all_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    await shown(PdbRun(), Pieces(b"begun", b" e\n"), console="x")
    assert capsys.readouterr().out == "begunx\n e\n"


async def test_the_output_of_several_parts_is_shown_whatever_their_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each part's agent numbers its own log."""
    channel = Pieces()
    numbers = [(7, b"pod 0\n"), (0, b"pod 1\n"), (0, b"pod 1 again\n")]
    channel._records = [LoopRecord(STDOUT, *one).encode() for one in numbers]
    await shown(PdbRun(), channel, console="x")
    assert capsys.readouterr().out == "pod 0\npod 1\nx\npod 1 again\n"
