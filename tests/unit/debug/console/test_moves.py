"""Steps, resumes and frames: each rank has its own."""

from __future__ import annotations

from tests.unit.debug.console.fake_session import FakeSession, sent_together


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


def test_a_file_of_the_node_is_not_shown_from_the_laptop_s_file_of_that_name() -> None:
    session = FakeSession(1, 2, reference=7)
    assert session.type("n") == "0-1         train.py:12 to_debug"
    assert "  train.py:17 <module> > to_debug  stopped" in session.type("list")
