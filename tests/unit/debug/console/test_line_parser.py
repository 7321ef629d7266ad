"""Lines of a console: commands where they can be, else Python; refusals with their columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.console.commands import (
    Attach,
    Break,
    Cast,
    Catch,
    ChooseFrame,
    Clear,
    Command,
    Detach,
    Evaluate,
    Go,
    Help,
    ListBreakpoints,
    ListRanks,
    Move,
    NameDimensions,
    Nothing,
    On,
    OpenEditor,
    Pause,
    Quit,
    ShowArguments,
    ShowSource,
    Where,
)
from tunnelkit.debug.console.line_parser import LineError, parse_line

COMMANDS: list[tuple[str, Command]] = [
    ("", Nothing()),
    (" \t", Nothing()),
    ("p loss", Evaluate("loss", "p")),
    ("p! loss", Evaluate("loss", "p", whole=True)),
    ("pp  {'a': 1}", Evaluate("{'a': 1}", "pp")),
    ("p -x", Evaluate("-x", "p")),
    ("p (x)", Evaluate("(x)", "p")),
    ("p not x", Evaluate("not x", "p")),
    ("whatis x", Evaluate("x", "whatis")),
    ("!n = 1", Evaluate("n = 1", "line")),
    ("! x", Evaluate("x", "line")),
    ("n", Move("next")),
    (" next ", Move("next")),
    ("step", Move("stepIn")),
    ("return", Move("stepOut")),
    ("c", Go()),
    ("continue", Go()),
    ("bt", Where()),
    ("u", ChooseFrame(1)),
    ("up 3", ChooseFrame(3)),
    ("d 2", ChooseFrame(-2)),
    ("a", ShowArguments()),
    ("ll", ShowSource(whole=True)),
    ("b", ListBreakpoints()),
    ("b 12", Break("", 12)),
    ("b src/train.py:88", Break("src/train.py", 88)),
    ("b /home/me/train.py:9", Break("/home/me/train.py", 9)),
    ("b ../lib/x.py:9, i == 3", Break("../lib/x.py", 9, "i == 3")),
    ("b in/foo.py:3", Break("in/foo.py", 3)),
    ("tbreak train.py:88, rank == 3 and x[1:2]", Break(
        "train.py", 88, "rank == 3 and x[1:2]", temporary=True
    )),
    ("cl", Clear()),
    ("clear 1 2", Clear((1, 2))),
    ("cl train.py:9", Clear(file="train.py", line=9)),
    ("on", On()),
    ("on 0-3,7", On("0-3,7", 3)),
    ("on :7", On(":7", 3)),
    ("on *", On("*", 3)),
    ("on !3", On("!3", 3)),
    ("attach debugee 13", Attach("13", 15)),
    ("attach 13", Attach("13", 7)),
    ("detach", Detach()),
    ("pause", Pause()),
    ("pause running", Pause("running", 6)),
    ("editor 3", OpenEditor("3", 7)),
    ("catch uncaught", Catch(("uncaught",))),
    ("catch uncaught raised", Catch(("raised", "uncaught"))),
    ("catch off", Catch(())),
    ("cast ranks(3) catch raised", Cast("3", 11, "catch raised", Catch(("raised",)))),
    ("catch = 3", Evaluate("catch = 3", "line")),
    ("mesh pp=2,dp=4", NameDimensions("pp=2,dp=4", 5)),
    ("help cast", Help("cast")),
    ("q", Quit()),
    ("exit", Quit()),
    ("EOF", Quit()),
    ("cast debugee ranks(hosts=2:, gpus=(0,1)) c", Cast("hosts=2:, gpus=(0,1)", 19, "c", Go())),
    ("cast ranks(3) !x = 1", Cast("3", 11, "!x = 1", Evaluate("x = 1", "line"))),
    ("cast ranks(3) (x)", Cast("3", 11, "(x)", Evaluate("(x)", "line"))),
    ("cast ranks(3) l", Cast("3", 11, "l", ShowSource())),
]  # fmt: skip


@pytest.mark.parametrize(("text", "command"), COMMANDS)
def test_commands(text: str, command: Command) -> None:
    assert parse_line(text, outer=True) == command


@pytest.mark.parametrize(
    ("text", "outer", "inner"),
    [
        ("l", ListRanks(), ShowSource()),
        ("list", ListRanks(), ShowSource()),
        ("list -a", ListRanks(each=True), ListRanks(each=True)),
        ("l 3", ListRanks("3", 2), ShowSource(3)),
        ("l 10, 20", ListRanks("10, 20", 2), ShowSource(10, 20)),
        ("l 10, 5", ListRanks("10, 5", 2), ShowSource(10, 15)),
        ("list stopped", ListRanks("stopped", 5), ListRanks("stopped", 5)),
    ],
)
def test_list_is_of_ranks_or_of_a_source(text: str, outer: Command, inner: Command) -> None:
    assert (parse_line(text, outer=True), parse_line(text, outer=False)) == (outer, inner)


@pytest.mark.parametrize(
    "text",
    [
        "c = 1", "a = 42", "list(x)", "n + 1", "p = 3", "p == 3", "b[0]", "u.x", "c.y()", "x",
        "a, b = 1, 2", "s += 1", "r is None", "n if c else b", "on = 3", "cast = 4", "list = []",
        "mesh = 4", "attach == 3", "p", "pp", "whatis", "a or b", "b * 2", "w - 1", "h // 2",
        "help(x)", "import os", "for x in y: print(x)", "l.append(3)", "j = 3", "source", "display",
        "commands", "until += 1", "source + 1", "(x)", "[1]", "'a'", "n x", "c 3", "print x",
        "é = 1", "jump", "run", "debug = True", "cl * 2",
    ],
)  # fmt: skip
def test_what_can_be_no_command_is_python(text: str) -> None:
    assert parse_line(text, outer=True) == Evaluate(text, "line")
    assert parse_line("cast ranks(0) " + text, outer=True) == Cast(
        "0", 11, text, Evaluate(text, "line")
    )


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("cast", 5, "after cast comes ranks("),
        ("cast 3 n", 8, "after cast comes ranks("),
        ("cast debugee n", 14, "in one word"),
        ("cast ranks (1) n", 12, "in one word"),
        ("cast ranks(1 n", 15, "not closed"),
        ("cast ranks(hosts=(1,2) n", 25, "not closed"),
        ("cast ranks(1)", 14, "line for the ranks is missing"),
        ("cast ranks(1) on 3", 0, "on is a command of the console"),
        ("cast ranks(1) list -a", 0, "list is a command of the console"),
        ("cast ranks(1) cast ranks(1) n", 0, "a cast is no line for ranks"),
        ("cast ranks(1) q", 0, "ends no rank"),
        ("attach", 7, "the rank is missing"),
        ("attach debugee", 8, "a rank is a number"),
        ("attach a b 3", 8, "takes a name"),
        ("editor x", 8, "number of a rank"),
        ("editor", 7, "number of a rank"),
        ("catch", 6, "raised, uncaught"),
        ("catch fire", 7, "raised, uncaught"),
        ("b foo", 3, "FILE:LINE"),
        ("b train.py:0", 12, "count from 1"),
        ("b 0", 3, "count from 1"),
        ("cl train.py", 4, "numbers of breakpoints"),
        ("!", 2, "missing after !"),
        ("kill 3", 0, "Ctrl-C there"),
        ("kill", 0, "Ctrl-C there"),
        ("stacks", 0, "use: tk ranks"),
        ("interact", 0, "word of pdb"),
        ("j 12", 0, "word of pdb"),
        ("until 12", 0, "word of pdb"),
        ("display x", 0, "word of pdb"),
        ("alias pi p 3", 0, "!alias"),
        ("commands 1", 0, "word of pdb"),
        ("x" * 20_001, 0, "is not read"),
    ],
)
def test_refusals_have_their_columns(text: str, column: int, part: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_line(text, outer=True)
    assert part in caught.value.message
    assert (caught.value.column, caught.value.text) == (column, text if column else "")


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            ("cast", "ranks(", ")", "attach", "on", "list", "-a", "l", "b", "cl", "p", ":", "3,")
        ),
        max_size=8,
    ).map(" ".join),
    st.booleans(),
)
def test_any_line_is_read_or_refused_at_a_column(text: str, outer: bool) -> None:
    try:
        parse_line(text, outer=outer)
    except LineError as error:
        assert 0 <= error.column <= len(text) + 1
        assert error.message.isprintable()


def test_a_deep_cast_is_refused() -> None:
    with pytest.raises(LineError):
        parse_line("cast ranks(0) " * 1_400 + "n", outer=True)
