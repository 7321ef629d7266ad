"""The walk of the seed: Monarch's tutorial, its lines as typed there."""

from __future__ import annotations

from tests.unit.debug.console.fake_session import FakeSession


def test_the_walk_word_for_word() -> None:
    session = FakeSession(nodes=4, each=4)
    assert session.console.prompt == "(tk 0-15) "
    assert session.type("list").splitlines() == [
        "   ranks  n   where                 state",
        "A  0-15   16  train.py:11 to_debug  stopped: breakpoint",
    ]
    assert session.type("attach debugee 13") == (
        "13 · node3 · stopped at train.py:11 to_debug   rank = inner_function(rank)"
    )
    assert session.console.prompt == "(tk 13 · node3) "
    assert session.type("s") == "train.py:5 inner_function   x = 655"
    assert session.type("n") == "train.py:6 inner_function   return rank + x"
    assert session.type("x") == "655"
    assert session.type("detach") == "lines go to 0-15"
    assert session.type("list").splitlines()[1:] == [
        "A  0-12,14-15  15  train.py:11 to_debug       stopped: breakpoint",
        "B  13          1   train.py:6 inner_function  stopped: step",
    ]
    assert session.type("attach debugee 13").splitlines() == [
        "13 · node3 · stopped at train.py:6 inner_function   return rank + x",
        "655",
    ]
    assert session.type("continue") == "runs on"
    assert session.type("detach") == "lines go to 0-15"
    assert session.type("list").splitlines()[2].split()[:2] == ["B", "13"]
    assert "running" in session.shown[2]


def test_its_casts() -> None:
    session = FakeSession(nodes=4, each=4)
    assert session.type("cast debugee ranks(0,1) n").splitlines() == [
        "ranks(0,1)   2 ranks",
        "0-1         train.py:12 to_debug   rank += 1",
    ]
    assert session.type("cast debugee ranks(2:7:2) s").splitlines() == [
        "ranks(2:7:2)   3 ranks",
        "2,4,6       train.py:5 inner_function   x = 655",
    ]
    assert session.type("cast debugee ranks(hosts=2:, gpus=1:) c").splitlines() == [
        "ranks(hosts=2:, gpus=1:)   6 ranks",
        "9-11,13-15  runs on",
    ]
    rows = [line.split()[:3] for line in session.type("list").splitlines()[1:]]
    assert rows == [
        ["A", "0-1", "2"],
        ["B", "2,4,6", "3"],
        ["C", "3,5,7-8,12", "5"],
        ["D", "9-11,13-15", "6"],
    ]


def test_its_end() -> None:
    session = FakeSession(nodes=2, each=2)
    session.type("b train.py:12")
    assert session.type("c").splitlines() == [
        "1 breakpoint of this console removed (`cast ranks(:) c` keeps them)",
        "0-3         runs on",
    ]
    assert all(
        one.breakpoints == {"/home/me/project/train.py": []} for one in session.ranks.values()
    )
    session.type("quit")
    assert session.over


def test_attach_says_the_place_of_a_rank_once() -> None:
    session = FakeSession(nodes=2, each=2)
    session.type("cast ranks(3) n")
    place = "3 · node1 · stopped at train.py:12 to_debug   rank += 1"
    assert session.type("attach debugee 3") == place
    session.type("detach")
    session.type("cast ranks(3) p 6 * 7")
    assert session.type("attach debugee 3").splitlines()[0] == place
    assert len(session.shown) == 2
