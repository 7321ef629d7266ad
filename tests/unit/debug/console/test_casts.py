"""Lines for many ranks: what is sent together, what is shown when, and who has not answered."""

from __future__ import annotations

import pytest

from tests.unit.debug.console.fake_session import PATH, FakeSession
from tunnelkit.debug.console.line_results import AnswerText, Unanswered


def asked(session: FakeSession, command: str) -> list[int]:
    return [ask["rank"] for ask in session.sent if ask["command"] == command]


def sent_together(session: FakeSession, command: str) -> list[list[int]]:
    """The ranks of each message that has such a request."""
    batches = []
    for message in session.batches:
        if message["type"] == "ask":
            ranks = [ask["rank"] for ask in message["asks"] if ask["command"] == command]
            if ranks:
                batches.append(ranks)
    return batches


def values_sent(session: FakeSession) -> list[list[int]]:
    """The ranks of each message that evaluates in a frame."""
    return [
        ranks
        for message in session.batches
        if message["type"] == "ask"
        and (ranks := [ask["rank"] for ask in message["asks"] if "frameId" in ask["arguments"]])
    ]


# -- values ---------------------------------------------------------------------------


def test_equal_values_are_one_block_and_all_are_sent_at_once() -> None:
    session = FakeSession(4, 4)
    session.ranks[7].names["loss"] = float("nan")
    assert session.type("p loss").splitlines() == ["0-6,8-15    0.5", "7           nan"]
    assert values_sent(session) == [list(range(16))]
    # Prepared once.
    assert len(asked(session, "stackTrace")) == 16
    session.type("p loss")
    assert len(asked(session, "stackTrace")) == 16


def test_a_statement_goes_to_all_at_once_too() -> None:
    session = FakeSession(2, 2)
    session.type("x = rank * 10")
    assert values_sent(session) == [[0, 1, 2, 3]] * 2
    assert session.type("p x").splitlines()[0] == "all different: 0 to 30 (p! for a line each)"
    assert session.type("p! x").splitlines() == [f"{r:<10}  {r * 10}" for r in range(4)]


def test_a_result_for_scripts() -> None:
    session = FakeSession(1, 3)
    session.ranks[1].state = "running"
    session.deliver(session.roster())
    result = session.result("p loss")
    reason = "running: `pause` stops it once it is back in Python"
    assert (result.line, result.ranks) == ("p loss", (0, 1, 2))
    assert result.blocks == (AnswerText((0, 2), "0.5"),)
    assert result.unanswered == (Unanswered((1,), reason),)
    assert not result.all_answered
    assert session.shown[-1] == "2 of 3 answered"
    assert session.result("on 0").all_answered
    assert session.result("p loss").all_answered
    refused = session.result("on 9")
    assert (refused.all_answered, refused.refusal) == (False, "there is no rank 9; there are 0-2")


def test_what_is_there_is_shown_after_a_second_then_late_answers() -> None:
    session = FakeSession(1, 4)
    session.type("p 1")
    session.ranks[2].mute.add("evaluate")
    assert session.type("p loss") == ""
    assert session.console.busy
    assert session.wait(0.9) == ""
    assert session.wait(0.2) == "0-1,3       0.5"
    assert session.wait(8.0) == ""
    assert session.wait(1.0).splitlines() == [
        "2           did not answer in 10 s",
        "3 of 4 answered",
    ]
    assert not session.console.busy
    late = session.sent[-2]
    assert late["rank"] == 2
    shown = session.deliver(
        {
            "type": "answer",
            "id": late["id"],
            "rank": 2,
            "success": True,
            "message": "",
            "body": {"result": '{"kind": "value", "text": "0.7", "size": 3}'},
        }
    )
    assert shown == "rank 2, late, to p loss: 0.7"


def test_a_rank_that_can_not_be_prepared_is_never_sent_the_line() -> None:
    session = FakeSession(1, 3)
    session.ranks[1].mute.add("stackTrace")
    assert session.type("p loss") == ""
    assert values_sent(session) == []
    session.wait(2.5)
    assert values_sent(session) == [[0, 2]]
    assert "1           did not answer, and was not sent the line" in session.shown
    session.ranks[1].mute.clear()
    session.wait(20)
    assert values_sent(session) == [[0, 2]]


def test_control_c_ends_the_waiting_only() -> None:
    session = FakeSession(1, 3)
    session.ranks[1].mute.add("evaluate")
    session.ranks[1].names["x"] = 3
    session.type("on 0,2")
    session.type("p 1")
    session.ranks[1].mute.clear()
    session.type("on all")
    session.type("p 1")
    session.ranks[1].mute.add("evaluate")
    session.type("p loss")
    sent = len(session.sent)
    session.shown = []
    session._take(session.console.interrupt(session.now_s))
    assert session.shown == [
        "0,2         0.5",
        "1           has not answered yet",
        "2 of 3 answered",
    ]
    assert (len(session.sent), session.console.busy) == (sent, False)


def test_the_end_of_a_rank_is_its_answer() -> None:
    session = FakeSession(1, 3)
    session.type("p 1")
    session.ranks[1].mute.add("evaluate")
    session.type("p loss")
    assert session.event(1, "terminated").splitlines() == [
        "0,2         0.5",
        "1           ended",
        "2 of 3 answered",
    ]
    assert session.done[-1].unanswered == (Unanswered((1,), "ended"),)
    assert session.console.prompt == "(tk 0,2) "
    assert session.wait(1) == "rank 1 ended"


def test_prints_belong_to_the_answer_and_never_mix() -> None:
    session = FakeSession(1, 2)
    session.type("on 0")
    assert session.type("print('a'); y = 3") == "a"
    assert session.type("print('b')") == "b"
    session.type("on all")
    assert session.type("print('r', rank)").splitlines() == ["0           r 0", "1           r 1"]
    assert session.event(0, "output", category="stdout", output="of the program\n") == ""


def test_addresses_do_not_count_and_control_characters_are_seen() -> None:
    session = FakeSession(1, 2)
    for rank, one in session.ranks.items():
        one.names["thing"] = type("T", (), {"__repr__": lambda _, r=rank: f"<T at 0x7f0000{r}0>"})()
        one.names["evil"] = type("E", (), {"__repr__": lambda _: "\x1b[2J\r\nnext\x07"})()
    assert session.type("p thing").splitlines() == [
        "0-1         <T at 0x7f000000>",
        "(addresses of objects differ from rank to rank)",
    ]
    assert session.type("p evil").splitlines() == ["0-1", "   \\x1b[2J", "   next\\x07"]


def test_nothing_is_wider_than_the_terminal() -> None:
    session = FakeSession(16, 4)
    for rank, one in session.ranks.items():
        one.names["long"] = "x" * 3000 + str(rank % 3)
        one.names["number"] = rank * 1.5
    for line in ("p long", "p! long", "p number", "p! number", "list", "list -a", "w", "n", "u"):
        for shown in session.type(line).splitlines():
            assert len(shown) <= 80, (line, shown)
    assert "characters here; `p!` shows all" in session.type("p long")
    assert session.type("p number").count("\n") < 16


def test_cut_values_differ_by_their_checksums() -> None:
    session = FakeSession(1, 4)
    for rank, one in session.ranks.items():
        one.names["long"] = "x" * 3000 + str(rank // 2)
    assert [block.ranks for block in session.result("p long").blocks] == [(0, 1), (2, 3)]


# -- moves ----------------------------------------------------------------------------


def test_a_rank_that_does_not_stop_is_still_running() -> None:
    session = FakeSession(1, 3)
    session.ranks[2].mute.add("next")
    assert session.type("n") == ""
    assert session.wait(1.1) == "0-1         train.py:12 to_debug   rank += 1"
    assert session.wait(2).splitlines() == ["2           did not answer in 3 s", "2 of 3 answered"]
    assert sent_together(session, "next") == [[0, 1, 2]]
    session.stops(2, 12, "step")
    assert session.wait(0.3) == "rank 2 stopped: train.py:12 to_debug rank += 1"


def test_a_step_that_does_not_end_is_still_running() -> None:
    session = FakeSession(1, 3)
    session.ranks[2].stays = True
    session.type("n")
    session.wait(3)
    assert session.shown[-2:] == ["2           still running", "2 of 3 answered"]
    assert session.type("p loss").splitlines()[1].startswith("2           running: `pause`")


def test_a_stop_may_come_before_the_answer_to_its_step() -> None:
    session = FakeSession(1, 1)
    session.holds = True
    session.type("n")
    session.let_go()
    session.holds = True
    session.type("n")
    session.held.sort(key=lambda message: message["type"] == "answer")
    assert session.let_go() == "train.py:13 to_debug   loss = loss * 2"


def test_a_refused_step_leaves_the_rank_stopped() -> None:
    session = FakeSession(1, 1)
    session.type("p 1")
    session.ranks[0].mute.add("next")
    session.type("n")
    ask = session.sent[-1]
    shown = session.deliver(
        {
            "type": "answer",
            "id": ask["id"],
            "rank": 0,
            "success": False,
            "message": "Thread\nis busy",
            "body": {},
        }
    )
    assert shown == "*** rank 0: is busy"
    assert session.type("p loss") == "0.5"


def test_c_is_answered_at_once_and_later_stops_are_folded() -> None:
    session = FakeSession(1, 4)
    session.type("on 0-2")
    assert session.type("c") == "0-2         runs on"
    assert session.type("p loss").splitlines() == [
        "0-2         running: `pause` stops it once it is back in Python",
        "0 of 3 answered",
    ]
    for rank in (0, 1, 2):
        session.stops(rank, 13)
    assert session.wait(0.3) == "ranks 0-2 stopped: train.py:13 to_debug loss = loss * 2"
    session.type("n")
    assert session.wait(0.3) == ""


def test_each_rank_has_its_own_frame_until_it_runs_on() -> None:
    session = FakeSession(1, 2)
    session.type("s")
    session.type("on 0")
    assert session.type("u") == "> train.py:11 to_debug   rank = inner_function(rank)"
    assert session.type("w").splitlines() == [
        "  train.py:17   <module>         to_debug(0)",
        "> train.py:11   to_debug         rank = inner_function(rank)",
        "  train.py:5    inner_function   x = 655",
    ]
    assert session.type("u 9") == "> train.py:17 <module>   to_debug(0)"
    assert session.type("u") == "*** Oldest frame"
    assert session.type("d 9") == "> train.py:5 inner_function   x = 655"
    assert session.type("d") == "*** Newest frame"
    session.type("u")
    session.type("on 1")
    assert session.type("l").splitlines()[4] == "   5  ->     x = 655"
    session.type("on 0")
    session.type("n")
    assert session.type("d") == "*** Newest frame"


def test_an_empty_line_repeats_for_one_rank_only() -> None:
    session = FakeSession(1, 2)
    session.type("n")
    assert session.type("") == ""
    session.type("cast ranks(0) n")
    session.type("on 0")
    assert session.type("") == ""
    session.type("n")
    assert session.type("") == "train.py:15 to_debug"
    assert [one.line for one in session.ranks.values()] == [15, 12]


# -- pausing, the selection --------------------------------------------------------------


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


# -- waiting ranks, breakpoints, new runs -----------------------------------------------


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
    assert " ".join(session.wait(0.3).split()) == (
        "rank 2 stopped at ValueError: bad rank 2 (train.py:11 to_debug) kept for you: on 2"
    )
    session.type("on failed")
    assert session.console.prompt == "(tk 2 · node0) "


def test_help_and_completion() -> None:
    session = FakeSession(1, 2)
    assert all(len(line) <= 80 for line in session.type("help").splitlines())
    assert session.type("help cast").startswith("cast: cast [NAME] ranks(SEL) LINE")
    assert session.console.complete("ca") == ["cast", "cast ranks("]
    assert session.console.complete("on node=n") == ["on node=node0"]
    assert "on stopped" in session.console.complete("on st")
