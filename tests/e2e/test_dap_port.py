"""What the session's port adds to a plain debugpy: how the program ended, the right path
mappings, and the truth about breakpoints in files that differ on the node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.tkrig import PATIENCE_S, Project, line_of

PROGRAM = "import os\nprint('here')\n{end}\n"


@pytest.fixture
async def up(project: Project) -> AsyncIterator[Project]:
    project.configure()
    project.write("end.py", PROGRAM.format(end="pass"))
    await project.tk("up")
    yield project


@pytest.mark.parametrize(
    ("end", "code"),
    [("pass", 0), ("os._exit(7)", 7), ("os.kill(os.getpid(), 11)", 128 + 11)],
)
async def test_the_editor_hears_how_the_program_ended(up: Project, end: str, code: int) -> None:
    up.write("end.py", PROGRAM.format(end=end))
    await up.loop("python", "end.py")
    editor, thread, _ = await up.f5_to_stop(2, file="end.py")
    await editor.request("continue", threadId=thread)
    exited = await editor.wait_event("exited")
    assert exited["exitCode"] == code
    await editor.wait_event("terminated")
    if code > 128:
        said = [one["body"]["output"] for one in editor.events if one["event"] == "output"]
        assert any("SIGSEGV" in text for text in said)
    await editor.close()


@pytest.mark.parametrize("mappings", [[], [{"localRoot": "LOCAL", "remoteRoot": "/wrong"}]])
async def test_path_mappings_come_from_the_mirror(
    up: Project, mappings: list[dict[str, str]]
) -> None:
    await up.loop("python", "end.py")
    given = [{**one, "localRoot": str(up.dir)} for one in mappings]
    editor = await up.editor()
    await editor.attach(
        {str(up.dir / "end.py"): [line_of(PROGRAM, "print")]},
        path_mappings=given,
        timeout_s=PATIENCE_S,
    )
    _, frame = await editor.stopped(PATIENCE_S)
    assert frame["source"]["path"] == str(up.dir / "end.py")
    said = [one["body"]["output"] for one in editor.events if one["event"] == "output"]
    assert any("path mappings" in text for text in said) == bool(mappings)
    await editor.close()


async def test_a_breakpoint_in_a_file_that_differs_on_the_node_says_so(up: Project) -> None:
    await up.loop("python", "end.py")
    up.write("other.py", "print('other')\n")
    await up.tk("sync", "--wait")
    up.remote("other.py").write_text("print('edited over there')\n")
    editor, thread, _ = await up.f5_to_stop(2, file="end.py")
    answers = await asyncio.gather(
        *(
            editor.request(
                "setBreakpoints",
                source={"path": str(up.dir / name)},
                breakpoints=[{"line": line}],
            )
            for name, line in (("other.py", 1), ("end.py", 2))
        )
    )
    (differs,), (same,) = (answer["breakpoints"] for answer in answers)
    assert not differs["verified"] and "not the same on the node" in differs["message"]
    assert same["verified"]
    await editor.finish(thread)
