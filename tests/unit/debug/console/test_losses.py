"""The link to the cluster is cut, or the session is gone, while a line has no answer."""

from __future__ import annotations

from tests.unit.debug.console.fake_session import PATH, FakeSession, asked, values_sent


def test_a_cut_link_is_said_and_answers_come_once_it_is_back() -> None:
    session = FakeSession(nodes=1, each=2)
    session.type("p rank")
    session.holds = True
    session.type("p loss")
    assert session.deliver({"type": "link", "up": False}).split(":")[0] == (
        "the link to the cluster is cut"
    )
    assert session.wait(10).splitlines() == [
        "0-1         did not answer in 10 s: the link to the cluster is cut",
        "0 of 2 answered",
    ]
    assert not session.console.busy
    sent = len(session.sent)
    assert session.deliver({"type": "link", "up": True}) == "the link to the cluster is back"
    assert session.let_go().splitlines() == [
        "rank 0, late, to p loss: 0.5",
        "rank 1, late, to p loss: 0.5",
    ]
    assert len(session.sent) == sent
    for rank in session.ranks.values():
        rank.mute = {"evaluate"}
    session.type("p rank")
    assert "did not answer in 10 s\n" in session.wait(10)


def test_a_statement_whose_rank_was_late_is_said_not_to_have_run() -> None:
    session = FakeSession(nodes=1, each=1)
    session.type("p rank")
    session.holds = True
    session.type("extra = 41")
    session.wait(10)
    assert session.let_go() == "rank 0, late, to extra = 41: too late: it was not run"
    assert "extra" not in session.ranks[0].names


def test_nothing_is_sent_again_to_the_next_session_but_breakpoints() -> None:
    session = FakeSession(nodes=1, each=2)
    session.type("b train.py:12")
    session.type("p rank")
    session.type("on 0")
    for rank in session.ranks.values():
        rank.mute = {"evaluate"}
    session.type("cast ranks(:) p loss")
    assert len(values_sent(session)) == 2
    step = session.console.lose_session(session.now_s)
    assert step.send == []
    assert step.show[0].endswith("the session ended before it answered; the line is not sent again")
    [done] = step.done
    assert done.unanswered[0].ranks == (0, 1) and not session.console.busy
    # It knows no breakpoints of the one before.
    before = asked(session, "setBreakpoints")
    for rank in session.ranks.values():
        rank.mute, rank.breakpoints = set(), {}
    assert session.console.prompt == "(tk 0) "
    # They come one by one, and none is said to have ended.
    whole = session.roster()
    session.deliver({**whole, "ranks": []})
    assert session.deliver({**whole, "ranks": whole["ranks"][1:]}) == "rank 1 is back"
    assert session.console.prompt == "(tk 0) "
    assert session.deliver(whole).splitlines() == [
        "rank 0 is back",
        "2 ranks on 1 node · torchrun train.py · 2 stopped",
    ]
    assert session.type("detach") == "lines go to 0-1"
    assert asked(session, "setBreakpoints") == [*before, 1, 0]
    assert session.ranks[1].breakpoints == {PATH: [{"line": 12}]}
    assert len(values_sent(session)) == 2
    assert session.type("p loss") == "0-1         0.5"
