"""Selections of ranks: what they select, and where they are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.debug.ranks.rosters import square
from tunnelkit.debug.ranks.fold import fold_ranks
from tunnelkit.debug.ranks.mesh import Mesh
from tunnelkit.debug.ranks.roster import Roster, RosterEntry
from tunnelkit.debug.ranks.sample import RankState
from tunnelkit.debug.ranks.selection import parse_selection
from tunnelkit.debug.ranks.text_errors import SelectionError
from tunnelkit.errors import TunnelkitError, UsageError

#: 4 nodes, node0 to node3, with 4 ranks each.
SQUARE = square(4, 4)


def refusal(text: str, roster: Roster = SQUARE) -> SelectionError:
    with pytest.raises(SelectionError) as caught:
        parse_selection(text).resolve(roster)
    return caught.value


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("3", "3"), ("0,1", "0-1"), (":", "0-15"), ("::", "0-15"), (":7", "0-6"), ("2:", "2-15"),
        ("2:7", "2-6"), ("2:7:2", "2,4,6"), ("::4", "0-12/4"), ("1::4", "1-13/4"), ("01", "1"),
        ("0:100", "0-15"), ("hosts=1", "4-7"), ("hosts=2:, gpus=1:", "9-11,13-15"),
        ("hosts=2:4, gpus=1:3", "9-10,13-14"), ("hosts=(0,2)", "0-3,8-11"),
        ("gpus=(0,3), hosts=1", "4,7"), ("hosts=::2", "0-3,8-11"),
        ("hosts = 1 , gpus = 2", "6"),
        # Once each, not twice.
        ("1,1", "1"),
    ],
)  # fmt: skip
def test_the_seeds_selections(text: str, ranks: str) -> None:
    assert fold_ranks(parse_selection(text).resolve(SQUARE)) == ranks


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        # The seed sends these to nobody, to others, or fails within its parser.
        ("16", 1, "no rank 16; there are 0-15"),
        ("0,99", 3, "no rank 99"),
        ("4:2", 1, "4:2 selects nobody"),
        ("::0", 3, "at least 1"),
        ("gpus=5:8", 1, "selects nobody"),
        ("foo=1", 1, "no dimension foo; there are rank, node, local"),
        ("Hosts=1", 1, "no dimension Hosts; hosts is one"),
        ("hosts=1,hosts=2", 9, "dimension node is given twice"),
        ("host=1, node=2", 9, "dimension node is given twice"),
        ("gpu=1, !local=2", 8, "dimension local is given twice"),
        # What else is not there.
        ("0-16", 3, "no rank 16"),
        ("!16", 2, "no rank 16"),
        ("hosts=4", 7, "no node 4; there are 0-3"),
        ("hosts=(0,2:4,7)", 14, "no node 7"),
        ("gpus=4", 6, "no local rank 4"),
        ("node=node9", 6, "no node is named node9; there are node0, node1"),
        ("gpu=node1", 5, "by numbers"),
        ("@C", 1, "no class @C; there are @A, @B"),
        ("0, @GONE", 4, "of @GONE, 16-17 is not there any more; left: 3"),
        ("failed", 1, "failed selects nobody"),
        ("!all", 1, "selects nobody"),
        ("node=1, rank=0", 1, "selects nobody"),
        ("9999999", 1, "no rank 9999999"),
        ("12345678", 1, "at most 7 digits"),
        ("node=00000001", 6, "at most 7 digits"),
        ("7-3", 3, "3-7"),
        ("0-12/0", 6, "at least 1"),
        ("0-12/", 6, "at least 1"),
        ("0-3:2", 4, "a range is written"),
        ("gpus=(0-3-5)", 10, "a range is written"),
        ("node=(node1:2)", 12, "a comma or ) must follow, not ':'"),
        ("node=1:node2", 8, "a comma"),
        ("@ A", 2, "name of a class is missing"),
        # Case counts.
        ("All", 1, "All alone selects nothing; the words are all, stopped"),
        ("STOPPED", 1, "alone selects nothing"),
        ("@a", 1, "no class @a"),
    ],
)
def test_what_selects_no_rank_is_an_error(text: str, column: int, part: str) -> None:
    error = refusal(text)
    assert (error.column, error.text) == (column, text)
    assert part in error.message


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("-1", 1), ("-4:", 1), ("1,", 3), (",1", 1), ("1,,2", 3), ("1 2", 3), ("", 1), ("1ab", 2),
        ("1,a,3", 3), ("a:2:4", 2), ("0..3", 2), ("1.5", 2), (":::", 3), ("1:2:3:4", 6),
        ("hosts", 6), ("hosts=", 7), ("hosts==1", 7), ("=1", 1), ("hosts:1", 6),
        ("hosts=(0,2,)", 12), ("hosts=1,2", 9), ("hosts=1 gpus=2", 9), ("hosts=1;gpus=2", 8),
        ("dim1=1,", 8), ("(1,2)", 1), ("٣", 1), ("１", 1), ("1٣", 2),
    ],
)  # fmt: skip
def test_the_seeds_refusals_at_its_columns(text: str, column: int) -> None:
    with pytest.raises(SelectionError) as caught:
        parse_selection(text)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        # The seed refuses these; the design's grammar has them.
        ("0-3", "0-3"),
        ("*", "0-15"),
        ("all", "0-15"),
        ("1:2:3,4", "1,4"),
        ("3:5, 1", "1,3-4"),
        ("1, 3:5", "1,3-4"),
        ("hosts=(1)", "4-7"),
        ("hosts=(0:2)", "0-7"),
        # What it adds.
        (" 0 - 3 , 7 ", "0-3,7"),
        ("\t1\t", "1"),
        ("0:9999999", "0-15"),
        ("9999998:9999999,1", "1"),
        ("node=1-2", "4-11"),
        ("node=node2", "8-11"),
        ("host=(node0, 2:3, node3, 1-1)", "0-15"),
        ("node=(node0,node0,0)", "0-3"),
        ("rank=0:8, local=1", "1,5"),
        ("rank=(1,3-5), !node=0", "4-5"),
        ("!hosts=(0,1)", "8-15"),
        ("!0-13", "14-15"),
        ("! ! 3", "3"),
        ("!" * 4000 + "3", "3"),
        ("@A", "0-2"),
        ("@A,@B, 9", "0-2,9,15"),
        ("!@A", "3-15"),
        ("stopped", "1-13/4"),
        ("running", "0-12/4"),
        ("waiting, ended", "2-3,6-7,10-11,14-15"),
        ("!stopped", "0,2-4,6-8,10-12,14-15"),
        # As tk prints them.
        ("0-12/4", "0-12/4"),
        ("0-3, !3", "0-2"),
        ("!3, 0-3, 9", "0-2,9"),
        ("!3, !0", "1-2,4-15"),
        ("pp=1", "8-15"),
        ("pp=1, dp=(0,3), tp=1", "9,15"),
        ("dp=2:, tp=0, node=1", "4,6"),
    ],
)
def test_the_designs_selections(text: str, ranks: str) -> None:
    states = [RankState.RUNNING, RankState.STOPPED, RankState.WAITING, RankState.ENDED]
    roster = Roster(
        tuple(
            RosterEntry(rank, f"node{rank // 4}", rank % 4, states[rank % 4]) for rank in range(16)
        ),
        classes={"A": (0, 1, 2), "B": (15,)},
        mesh=Mesh(("pp", "dp", "tp"), (2, 4, 2)),
    )
    assert fold_ranks(parse_selection(text).resolve(roster)) == ranks


def test_failed_ranks_are_stopped_or_have_ended() -> None:
    roster = Roster(
        (
            RosterEntry(0, "a", 0, RankState.STOPPED, failed=True),
            RosterEntry(1, "a", 1, RankState.ENDED, failed=True),
            RosterEntry(2, "a", 2, RankState.ENDED),
            RosterEntry(3, "a", 3, RankState.SILENT),
        )
    )
    found = {
        word: parse_selection(word).resolve(roster)
        for word in ("failed", "stopped", "ended", "!failed")
    }
    assert found == {"failed": (0, 1), "stopped": (0,), "ended": (1, 2), "!failed": (2, 3)}


def test_places_are_those_where_ranks_really_run() -> None:
    """Cyclic placement, uneven tasks, and a node whose name looks like a range."""
    hosts = {0: "zeta", 1: "gpu-2.site", 2: "3-4", 3: "zeta", 4: "gpu-2.site", 6: "zeta"}
    local: dict[str, int] = {}
    entries = []
    for rank, node in hosts.items():
        entries.append(RosterEntry(rank, node, local.setdefault(node, 0), RankState.RUNNING))
        local[node] += 1
    roster = Roster(tuple(reversed(entries)))
    chosen = {
        text: fold_ranks(parse_selection(text).resolve(roster))
        for text in ("node=0", "node=zeta", "node=gpu-2.site", "node=2", "gpu=1", "0-6", "!1:")
    }
    assert chosen == {
        "node=0": "0,3,6",
        "node=zeta": "0,3,6",
        "node=gpu-2.site": "1,4",
        "node=2": "2",
        "gpu=1": "3-4",
        # Rank 5 is not there; only the ends of a range must be.
        "0-6": "0-4,6",
        "!1:": "0",
    }
    assert refusal("0-5", roster).column == 3
    assert refusal("gpu=2, node=1", roster).message == "gpu=2, node=1 selects nobody"
    assert refusal("node=3-4", roster).message == "there is no node 3; there are 0-2"


@pytest.mark.parametrize(
    ("text", "column", "advice"),
    [
        ("hosts=1,2", 9, "write hosts=(1,2)"),
        ("hosts=(0,2), 4:6", 14, "write hosts=(0,2,4:6)"),
        ("!hosts=1, !2", 11, "write !hosts=(1,2)"),
        ("0-3, 7, node=1", 9, "write rank=(0-3, 7), node=1"),
        ("stopped, node=1", 10, "write only dimensions (node=1, local=2), or none"),
        ("node=1, stopped", 9, "write only dimensions"),
        ("node=1, @A", 9, "write only dimensions"),
        ("!0, node=1", 5, "write only dimensions"),
        ("0," * 100 + "node=1", 201, "write brackets: node=(1,2)"),
    ],
)
def test_dimensions_and_others_do_not_mix(text: str, column: int, advice: str) -> None:
    error = refusal(text)
    assert error.column == column
    assert advice in error.message


def test_no_ranks_yet() -> None:
    assert "no ranks are there yet" in refusal("all", Roster(())).message
    assert "there are none" in refusal("0", Roster(())).message
    assert "there are none" in refusal("node=x", Roster(())).message


# -- the error itself ---------------------------------------------------------


def test_the_caret_stands_below_the_column() -> None:
    error = refusal("1:2:3:4")
    assert isinstance(error, UsageError)
    assert error.message == "a range has at most start:stop:step"
    assert error.hint == "1:2:3:4\n     ^"
    assert error.one_line() == f"{error.message} (column 6 of 1:2:3:4)"


def test_what_a_terminal_would_obey_is_escaped() -> None:
    error = refusal("0, \x1b[31m")
    assert error.message == "'\\x1b' has no meaning here"
    assert error.hint == "0, \\x1b[31m\n   ^"
    roster = Roster((RosterEntry(0, "a\x1b[31m\n", 0, RankState.RUNNING),))
    assert refusal("node=x", roster).message == "no node is named x; there are a\\x1b[31m\\n"


def test_a_long_text_is_cut_around_the_column() -> None:
    error = refusal("0," * 1000 + "x" * 1000)
    line, caret = str(error.hint).split("\n")
    assert line[: len(caret) + 2].endswith("0,xxx")
    assert max(len(line), len(error.one_line()) // 4) < 85
    assert refusal("0" * 5000).message == "a text of over 4,096 characters is not read"


def test_the_error_survives_json() -> None:
    error = refusal("1:2:3:4")
    again = TunnelkitError.from_json({**error.to_json()})
    assert isinstance(again, SelectionError)
    assert (again.message, again.hint) == (error.message, error.hint)
    assert again.one_line() == error.message


@given(st.text(max_size=40) | st.text("0123456789:,-=!@()* nodestpA.x\t", max_size=40))
def test_any_text_is_read_or_refused_at_a_column(text: str) -> None:
    roster = Roster(SQUARE.entries, SQUARE.classes, Mesh(("pp", "x"), (4, 4)))
    try:
        ranks = parse_selection(text).resolve(roster)
    except SelectionError as error:
        assert 1 <= error.column <= len(text) + 1
        assert error.message.isprintable()
        assert all(line.isprintable() for line in str(error.hint).split("\n"))
    else:
        assert ranks
        assert set(ranks) <= set(roster.by_rank)
        assert list(ranks) == sorted(set(ranks))


@pytest.mark.parametrize(
    "text",
    ["0," * 2047 + "0", "::," * 1365 + ":", "!0," * 1365 + "1", "node=(" + "0," * 2000 + "0)"],
)
def test_the_longest_texts_are_resolved_at_1024_ranks(text: str) -> None:
    assert parse_selection(text).resolve(square(128, 8))
