"""The ranks that get the lines, their breakpoints, and what happens when runs begin and end."""

from __future__ import annotations

import pytest

from tests.unit.debug.console.fake_session import PATH, FakeSession, asked


def test_pause() -> None:
    session = FakeSession(1, 3, state="running")
    session.ranks[2].stays = True
    session.type("pause 0-1")
    assert asked(session, "pause") == [0, 1]
    assert session.shown == ["0-1         train.py:11 to_debug   rank = inner_function(rank)"]
    assert session.type("on 2") == "2 · node0 · running"
    session.type("pause")
    assert session.wait(3) == (
        "*** rank 2: has not stopped: it is in native code, or about to stop"
    )


@pytest.mark.parametrize(
    ("lines", "prompt"),
    [
        ([], "(tk 0-15) "),
        (["on 13"], "(tk 13 · node3) "),
        (["on 0-3,7"], "(tk 0-3,7) "),
        (["on node=2:, local=1:"], "(tk 9-11,13-15) "),
        (["on 13", "on all"], "(tk 0-15) "),
        (["on 0-3", "attach 5", "attach 6", "detach"], "(tk 0-3) "),
        (["attach x 5", "detach"], "(tk 0-15) "),
        (["list", "on @A"], "(tk @A: 0-15) "),
        (["on 99"], "(tk 0-15) "),
        (["mesh pp=4,dp=4", "on pp=1"], "(tk 4-7) "),
        (["mesh pp=4"], "(tk 0-15) "),
    ],
)
def test_the_prompt_says_who_listens(lines: list[str], prompt: str) -> None:
    session = FakeSession(4, 4)
    for line in lines:
        session.type(line)
    assert session.console.prompt == prompt


def test_refusals_point_into_the_line() -> None:
    session = FakeSession(2, 2)
    assert session.type("cast ranks(1:2:3:4) n").splitlines() == [
        "cast ranks(1:2:3:4) n",
        "                ^ a range has at most start:stop:step",
    ]
    assert session.type("attach debugee 9").splitlines() == [
        "attach debugee 9",
        "               ^ there is no rank 9; there are 0-3",
    ]
    assert session.type("mesh pp=3").splitlines()[1].startswith("     ^ the program has 4 ranks")
    assert session.type("kill 2") == "tk loop's terminal ends the run: Ctrl-C there"
    assert session.sent == []


def test_waiting_ranks_get_their_breakpoints_before_they_begin() -> None:
    session = FakeSession(4, 4, state="waiting")
    assert " ".join(session.shown) == (
        "16 ranks on 4 nodes · torchrun train.py · 16 waiting "
        "16 ranks wait for a debugger: `c` lets them run, `b FILE:LINE` first if you like"
    )
    assert session.type("p 1").splitlines() == [
        "0-15        waits for a debugger: `c` lets it run",
        "0 of 16 answered",
    ]
    assert (
        session.type("b train.py:13")
        == "0-15        Breakpoint 1 at train.py:13, for when it begins"
    )
    assert session.sent == []
    assert session.type("c") == "0-15        begins"
    assert session.released == list(range(16))
    kinds = [message["type"] for message in session.batches]
    assert kinds == ["ask", "release"]
    assert session.ranks[3].breakpoints == {PATH: [{"line": 13}]}


def test_breakpoints_are_numbered_by_the_console() -> None:
    session = FakeSession(1, 4)
    assert session.type("b train.py:12") == "0-3         Breakpoint 1 at train.py:12"
    session.type("on 2")
    assert session.type("b 13, rank > 1") == "Breakpoint 2 at train.py:13"
    assert session.ranks[1].breakpoints == {PATH: [{"line": 12}]}
    assert session.ranks[2].breakpoints == {
        PATH: [{"line": 12}, {"line": 13, "condition": "rank > 1"}]
    }
    assert session.type("b").splitlines() == [
        "  1  train.py:12  (all ranks)",
        "  2  train.py:13  if rank > 1  (2)",
    ]
    # In `on 2`, the first one stays with the others.
    session.type("cl 1")
    assert session.ranks[2].breakpoints == {PATH: [{"line": 13, "condition": "rank > 1"}]}
    assert session.ranks[1].breakpoints == {PATH: [{"line": 12}]}
    assert session.type("cl 7") == "there is no breakpoint 7; there are 1-2"
    assert session.type("b train.py:99") == "train.py has 17 lines"
    assert session.type("b other.py:9") == "there is no file other.py in the project"
    session.type("on all")
    session.type("cl train.py:12")
    session.type("cl")
    assert session.type("b") == "no breakpoints are set"


def test_a_temporary_breakpoint_is_gone_where_it_was_reached() -> None:
    session = FakeSession(1, 2)
    session.type("tbreak train.py:13")
    session.type("cast ranks(:) c")
    session.stops(0, 13)
    assert session.ranks[0].breakpoints == {PATH: []}
    assert session.ranks[1].breakpoints == {PATH: [{"line": 13}]}
    session.stops(1, 13)
    assert session.type("b") == "no breakpoints are set"


def test_a_new_run_gets_the_breakpoints_again() -> None:
    session = FakeSession(1, 2)
    session.type("b train.py:13")
    session.type("on 1")
    session.generation = 2
    for one in session.ranks.values():
        one.state, one.breakpoints, one.pid = "running", {}, 5000 + one.rank
    shown = session.deliver(session.roster())
    assert "a new run has begun; it gets 1 breakpoint of this console" in shown
    assert all(one.breakpoints == {PATH: [{"line": 13}]} for one in session.ranks.values())


def test_ranks_that_their_launcher_starts_again_wait_again() -> None:
    session = FakeSession(1, 4, state="waiting")
    assert session.type("c") == "0-3         begins"
    session.deliver(session.roster())
    for one in session.ranks.values():
        one.state, one.pid = "waiting", 5000 + one.rank
    assert "4 ranks wait for a debugger: `c`" in session.deliver(session.roster())
    # Not again with each that begins.
    for one in session.ranks.values():
        one.state = "running"
        assert "wait" not in session.deliver(session.roster())


def test_nobody_is_there() -> None:
    session = FakeSession(0, 0)
    assert session.console.prompt == "(tk) "
    assert session.type("p 1") == "no ranks are there yet"
    assert session.type("c") == "no ranks are there yet"
    assert session.type("list") == "no ranks are there yet"
    assert not session.result("on 0").all_answered


def test_one_process_is_a_pdb() -> None:
    session = FakeSession(1, 1)
    assert session.console.prompt == "(tk 0 · node0) "
    assert session.type("l").splitlines()[5] == "  11  ->     rank = inner_function(rank)"
    session.type("b 13")
    assert session.type("c") == "runs on"
    assert session.ranks[0].breakpoints == {PATH: [{"line": 13}]}


def test_an_exception_names_itself() -> None:
    session = FakeSession(1, 3, state="running")
    session.stops(2, 11, "exception", text="ValueError", description="bad rank 2")
    assert session.wait(0.3) == ""
    session.raises(2, "bad rank 2")
    assert " ".join(session.wait(0.3).split()) == (
        "rank 2 · node0 failed: ValueError: bad rank 2 (train.py:11) kept for you: on 2"
    )
    session.type("on failed")
    assert session.console.prompt == "(tk 2 · node0) "


def test_help_and_completion() -> None:
    session = FakeSession(1, 2)
    assert all(len(line) <= 80 for line in session.type("help").splitlines())
    assert session.type("help cast").startswith("cast: cast [NAME] ranks(SEL) LINE")
    assert session.console.complete("ca") == ["cast", "cast ranks(", "catch"]
    assert session.console.complete("on node=n") == ["on node=node0"]
    assert "on stopped" in session.console.complete("on st")


def test_exceptions_stop_the_ranks_of_this_run_and_of_the_next() -> None:
    session = FakeSession(1, 3)
    assert session.type("catch uncaught") == "0-2         stops at uncaught exceptions"
    assert [one.filters for one in session.ranks.values()] == [["uncaught"]] * 3
    session.type("on 2")
    assert session.type("catch off") == "stops at no exceptions"
    assert [one.filters for one in session.ranks.values()] == [["uncaught"], ["uncaught"], []]
    assert session.type("b") == "    uncaught exceptions  (0-1)"
    session.type("on all")
    # `c` takes the breakpoints away, but runs on to the exception.
    session.type("c")
    assert session.ranks[0].filters == ["uncaught"]
    for rank in session.ranks.values():
        rank.pid, rank.filters = 5000 + rank.rank, ()
    session.generation = 2
    session.deliver(session.roster())
    assert [one.filters for one in session.ranks.values()] == [["uncaught"], ["uncaught"], ()]


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        ({"has": "Emacs", "opens": "", "port": 40058}, "rank 2 is in Emacs already"),
        ({"has": "", "opens": "Visual\x1b[2J", "port": 40058}, r"rank 2 opens in Visual\x1b[2J"),
        ({"has": "", "opens": "", "port": 40058}, "rank 2: attach an editor to 127.0.0.1:40058"),
        ({"has": "", "opens": "", "port": None}, "rank 2 has no port of its own"),
    ],
)
def test_editor_opens_a_rank_or_says_where(found: dict[str, object], answer: str) -> None:
    session = FakeSession(1, 3)
    session.ranks[2].editor = found
    assert session.type("editor 2").startswith(answer)
    assert asked(session, "tkOpenEditor") == [2]
    session.event(2, "terminated")
    assert "ended" in session.type("editor 2")
    assert asked(session, "tkOpenEditor") == [2]
