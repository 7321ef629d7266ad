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
#: Its exception, and that one's cause, are written for the terminal, and long.
FAILS = """\
    class Evil(Exception):
        pass

    Evil.__qualname__ = "Evil\\x1b]0;owned\\x07"

    def fails():
        try:
            raise KeyError("\\x1b[2J" + "x" * 1_000_000)
        except KeyError as error:
            raise Evil("\\x1b[31m\\r\\nrank 0 ended" + "y" * 1_000_000) from error

    fails()
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


async def test_the_text_of_an_exception_is_cut_and_escaped(project: Project) -> None:
    project.write("fails.py", FAILS)
    await project.up()
    terminal = await project.loop("--post-mortem", "srun", "-n", "1", "python", "fails.py")
    begun = await project.tk("console", "-c", "c")
    await terminal.line("kept at Evil")
    done = await project.tk(
        "console",
        *("-c", "on failed", "-c", "w", "-c", "list failed", "-c", "p 6 * 7", "-c", "l"),
    )
    assert "raise Evil" in done.out and "42" in done.out and "failed" in done.out
    where = await project.tk("ranks", "--full", "failed")
    each = await project.tk("ranks", "--all")
    shown = await project.tk("ranks", "--json")
    assert "Evil" in where.out and "fails.py" in where.out
    assert shown.json["ranks"][0]["failure"]["type"].startswith("Evil")
    for text in (begun.out, done.out, done.err, where.out, each.out, terminal.text):
        assert not any(one in text for one in _OBEYED), text
        assert len(text) < 20_000
    assert len(shown.out) < 20_000
    # Its traceback, a line of a megabyte, is the program's own affair.
    terminal.interrupt()
    await terminal.line(r"run 1 · ended: .*restarted by you")
