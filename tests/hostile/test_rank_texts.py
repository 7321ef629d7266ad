"""A program whose values are meant for the terminal: nothing of it arrives raw."""

from __future__ import annotations

from tests.support.tkrig import Project

PROGRAM = """\
    class Evil:
        def __repr__(self):
            return "\\x1b]0;owned\\x07\\x1b[2J"

    value = Evil()
    breakpoint()
    print("over")
    """
_OBEYED = ("\x1b", "\x07", "\x9b")


async def test_values_prints_and_errors_are_escaped(project: Project) -> None:
    project.write("evil.py", PROGRAM)
    await project.up()
    await project.loop("srun", "-n", "1", "python", "evil.py")
    done = await project.tk(
        "console",
        *("-c", "c", "-c", "w", "-c", "p value", "-c", "p! value"),
        *("-c", "print('\\x1b[8mhidden')", "-c", "raise ValueError('\\x1b[2J')"),
    )
    assert "evil" in done.out and "owned" in done.out and "hidden" in done.out
    where = await project.tk("ranks", "--full")
    each = await project.tk("ranks", "--all")
    assert "evil" in where.out
    for text in (done.out, done.err, where.out, each.out):
        assert not any(one in text for one in _OBEYED), text
