"""Lines for many ranks: what is sent together, what is shown when, and who has not answered."""

from __future__ import annotations

from tests.unit.debug.console.fake_session import FakeSession, asked, values_sent
from tunnelkit.debug.console.line_results import AnswerText, Unanswered


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


def test_ranks_that_answer_one_after_another_are_waited_for() -> None:
    session = FakeSession(1, 4)
    session.holds = True
    session.type("p loss")
    held, session.held = session.held, []
    for reply in held:
        session.wait(1.5)
        assert values_sent(session) == []
        session.deliver(reply)
    while values_sent(session) == []:
        held, session.held = session.held, []
        for reply in held:
            session.wait(1.5)
            session.deliver(reply)
    assert values_sent(session) == [[0, 1, 2, 3]]


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
