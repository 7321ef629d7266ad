"""200,000 lines of output: the editor is given a bounded part and the count, the log has all."""

from __future__ import annotations

import re
import time

import pytest

from tests.support.editors import said
from tests.support.tkrig import PATIENCE_S, Project, line_of

LINES = 200_000
#: A hundred lines a write, so that the flood is one however slow pydevd is today.
SOURCE = f"""\
import sys
print("here")
for first in range(0, {LINES}, 100):
    part = range(first, first + 100)
    sys.stdout.write("".join("line %06d of what nobody reads, but all of it\\n" % n for n in part))
print("all")
"""


@pytest.mark.timeout(400)
async def test_200k_lines_are_capped_for_the_editor_and_counted(project: Project) -> None:
    project.write("flood.py", SOURCE)
    await project.up("node1", "--cpus", "2")
    terminal = await project.loop("python", "flood.py")
    first, last = line_of(SOURCE, 'print("here")'), line_of(SOURCE, 'print("all")')
    editor = await project.f5(first, last, file="flood.py", redirectOutput=True)
    thread, _ = await editor.stopped(PATIENCE_S)
    started = time.monotonic()
    await editor.request("continue", threadId=thread)
    thread, frame = await editor.stopped(180)
    took_s = time.monotonic() - started
    assert frame["line"] == last

    # What was written before the stop is there before the stop, and its end among it.
    text = said(editor)
    assert f"line {LINES - 1} of what" in text
    left_out = sum(
        int(one.replace(",", "")) for one in re.findall(r"([\d,]+) lines? left out", text)
    )
    given = re.findall(r"^line (\d{6}) of .* all of it$", text, re.M)
    assert left_out > LINES // 2
    # A line that is cut in its middle is neither. One whose end alone is left out is both: pydevd
    # sends an end of line apart, and ends of lines are what is counted.
    assert abs(len(given) + left_out - LINES) <= text.count("left out")
    assert [int(one) for one in given] == sorted(map(int, given))
    size_bytes = sum(len(str(event)) for event in editor.events)
    assert size_bytes < 256 * 1024 * (took_s + 2)
    assert len(editor.events) < 50 * (took_s + 2)

    # The editor is not behind: a question is answered at once.
    started = time.monotonic()
    assert await editor.evaluate("first", frame) == str(LINES - 100)
    assert time.monotonic() - started < 5
    await editor.finish(thread)
    await terminal.line("^all$")
    written = re.findall(r"^line (\d{6}) of .* all of it$", terminal.text, re.M)
    assert list(map(int, written)) == list(range(LINES))


POINTS = 20_000
#: Long enough to be too much also where pydevd sends only some hundreds a second.
PADDING = "x" * 900
COUNTS = f"""\
for number in range({POINTS}):
    value = number * 2
print("all")
"""


@pytest.mark.timeout(400)
async def test_what_a_log_point_says_too_often_for_the_editor_is_in_tk_logs(
    project: Project,
) -> None:
    """The program writes nothing of it: pydevd sends it to the editor alone."""
    project.write("2.py", COUNTS)
    await project.up("node1", "--cpus", "2")
    terminal = await project.loop("python", "2.py")
    editor = await project.f5(1)
    thread, _ = await editor.stopped(PATIENCE_S)
    said_each = {"line": 2, "logMessage": "at {number} of what nobody reads " + PADDING}
    await editor.request(
        "setBreakpoints",
        source={"path": str(project.dir / "2.py")},
        breakpoints=[said_each, {"line": 3}],
    )
    await editor.request("continue", threadId=thread)
    thread, frame = await editor.stopped(180)
    assert frame["line"] == 3
    text = said(editor)
    assert "lines left out; see tk logs" in text
    logged = (await project.tk("logs", "-n", str(2 * POINTS))).out
    given, rest = (
        {int(one) for one in re.findall(rf"^at (\d+) of what nobody reads {PADDING}$", all_, re.M)}
        for all_ in (text, logged)
    )
    # One whose end alone is left out is in neither.
    assert len(given | rest) >= POINTS - text.count("left out")
    assert len(rest) > 100
    await editor.finish(thread)
    await terminal.line("^all$")
