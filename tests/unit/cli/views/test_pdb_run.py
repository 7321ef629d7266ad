"""The output of a program under `tk pdb`: a console writes to the same terminal."""

from __future__ import annotations

import asyncio

import pytest

from tunnelkit.cli.views.pdb_run import PdbRun, _Output
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
    assert capsys.readouterr().out == "one\nruns on\nbegun é\nend\n"


async def test_a_question_is_shown_after_a_moment(capsys: pytest.CaptureFixture[str]) -> None:
    channel = Pieces(b"your name: ", b"Ada\n")
    reading = asyncio.create_task(PdbRun(hold_s=0.01).read(channel))  # type: ignore[arg-type]
    seen = ""
    async with asyncio.timeout(10):
        while not seen:
            await asyncio.sleep(0.005)
            seen = capsys.readouterr().out
    assert seen == "your name: \n"
    channel.goes_on.set()
    await reading
    assert capsys.readouterr().out == "your name: Ada\n"


def output(hold_s: float = 60.0) -> tuple[_Output, list[str]]:
    """A stream beside a prompt, and what was written of it."""
    written: list[str] = []
    return _Output(written.append, hold_s), written


async def test_a_prompt_overwrites_no_part_of_a_line() -> None:
    """prompt_toolkit draws at the left edge: what has no end is lost."""
    stream, written = output()
    stream.feed(b"abc")
    assert written == []
    stream.flush()
    stream.feed(b"de")
    stream.flush()
    stream.flush()
    assert written == ["abc\n", "abcde\n"]
    stream.feed(b"f\nnext\n")
    assert "".join(written) == "abc\nabcde\nabcdef\nnext\n"


async def test_a_line_that_was_shown_whole_is_not_shown_again() -> None:
    stream, written = output()
    stream.feed(b"loading ...")
    stream.flush()
    stream.feed(b"\n\nabc\n")
    stream.flush()
    assert "".join(written) == "loading ...\n\nabc\n"


async def test_of_a_progress_bar_the_last_state_is_shown() -> None:
    stream, written = output()
    for percent in range(99):
        stream.feed(f"\r {percent} %".encode())
    stream.flush()
    stream.feed(b"\r 99 %\r")
    stream.feed(b"100 %\ndone\n")
    assert "".join(written) == " 98 %\n 99 %\r100 %\ndone\n"


async def test_a_line_without_an_end_is_shown_in_pieces() -> None:
    stream, written = output()
    for _ in range(100):
        stream.feed(b"x" * 1000)
    assert all(one.endswith("\n") for one in written)
    assert 80_000 < sum(len(one) - 1 for one in written) <= 100_000


async def test_a_line_that_grows_is_shown_less_and_less_often() -> None:
    stream, written = output()
    now_s = asyncio.get_running_loop().time()
    for wait_s in (60, 120, 240):
        stream.feed(b".")
        assert stream._timer is not None and wait_s <= stream._timer.when() - now_s < wait_s + 60
        stream.flush()
    stream.feed(b"\nnext")
    assert stream._timer is not None and stream._timer.when() - now_s < 120
    stream.flush()
    assert written == [".\n", "..\n", "...\n", "next\n"]


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
