"""`tk loop` of what is not there, or can't be debugged, and of what is behind a wrapper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.tkrig import PROGRAM, Project, line_of
from tunnelkit.errors import ExitCode

STOP = line_of(PROGRAM, "total += step")


@pytest.fixture
async def up(project: Project) -> AsyncIterator[Project]:
    await project.up("node1", "--cpus", "2")
    yield project


async def refused(project: Project, *command: str) -> str:
    """The one line that `tk loop` ends with."""
    done = await project.tk("loop", *command, code=int(ExitCode.DEBUG), timeout_s=20.0)
    assert done.out == ""
    (line,) = done.err.splitlines()
    return line


async def test_what_is_not_on_the_node_is_refused_at_once(up: Project) -> None:
    assert "tk: pythn: not found on node1" in await refused(up, "pythn", "2.py")
    assert "tk: nosuch.py: not found on node1" in await refused(up, "python", "nosuch.py")
    command = ("python", "-u", "-m", "debugpy", "--wait-for-client", "nosuch.py", "2.py")
    assert "tk: nosuch.py: not found on node1" in await refused(up, *command)
    assert "nosuch.sh: not found on node1" in await refused(up, "./nosuch.sh")
    assert "tk loop sh -c" in await refused(up, "cd x && python 2.py")
    assert (await up.status())["loops"] == []


async def test_a_file_that_is_left_out_of_the_mirror_is_refused_with_the_way_to_why(
    up: Project,
) -> None:
    up.write(".tkignore", "mine.py\n")
    up.write("mine.py", PROGRAM)
    line = await refused(up, "python", "mine.py")
    assert "mine.py: not found on node1, though it is here" in line
    assert "tk sync --explain mine.py" in line


async def test_a_file_of_this_moment_is_waited_for(up: Project) -> None:
    up.write("data.bin", "0123456789" * 3_000_000)
    up.write("now.py", PROGRAM)
    await up.loop("python", "now.py")
    _, _, frame = await up.f5_to_stop(STOP, file="now.py")
    assert frame["line"] == STOP


async def test_a_file_that_is_on_the_node_alone_is_taken(up: Project) -> None:
    up.remote("made.py").write_text(PROGRAM)
    await up.loop("python", str(up.remote("made.py")))


@pytest.mark.parametrize(
    "command",
    [
        ("env", "WORD=1", "python", "-m", "debugpy", "2.py"),
        ("srun", "-n1", "python", "2.py"),
        ("sh", "-c", "cd . && exec python -m debugpy --wait-for-client 2.py"),
    ],
)
async def test_wrappers_and_lines_of_shell_go_on_working(
    up: Project, command: tuple[str, ...]
) -> None:
    terminal = await up.loop(*command, armed=False)
    await terminal.line(r"run 1 .* starting")
    if command[0] != "sh":
        await terminal.line("armed")


async def test_a_command_without_python_says_that_f5_finds_nothing(up: Project) -> None:
    terminal = await up.loop("ls", armed=False)
    line = await terminal.line("F5 finds nothing here: ls runs again")
    assert line.string.endswith("For F5: tk loop python FILE")
    await terminal.line(r"2\.py")
    terminal = await up.loop("env", "A=1", "python", "2.py", "--port", "1", armed=False)
    line = await terminal.line("F5 finds nothing here")
    assert line.string.endswith("tk loop env A=1 python -m debugpy 2.py --port 1")


async def test_without_a_session_too(project: Project) -> None:
    assert "pythn: not found on this machine" in await refused(project, "--local", "pythn", "2.py")
    line = await refused(project, "--local", "python", "nosuch.py")
    assert "nosuch.py: not found on this machine" in line


async def test_the_end_of_a_run_tells_how_long_the_program_ran_and_the_wait_apart(
    up: Project,
) -> None:
    up.write("short.py", "import time\ntime.sleep(0.3)\nprint('over')\n")
    terminal = await up.loop("python", "short.py")
    await asyncio.sleep(3)  # a person who takes their time
    editor = await up.f5(file="short.py")
    await editor.wait_event("terminated")
    end = await terminal.line(
        r"run 1 · ended: exit code 0 after ([\d.]+) s, peak \d+ MiB"
        r" \(it had waited ([\d.]+) s for F5\)"
    )
    ran_s, waited_s = float(end[1]), float(end[2])
    assert 0.3 <= ran_s < 2.5 < waited_s
    logged = (await up.tk("logs")).out
    assert end.string.rpartition("run 1")[2] in logged
    await terminal.line(r"run 2 .*armed")
    terminal.interrupt()  # nobody came: the program of this one never ran
    await terminal.line(r"run 2 · ended: .* \(restarted by you\) after [\d.]+ s of waiting for F5")
