"""Any selection of the grammar against a model that asks of each rank whether it is meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.ranks.mesh import Mesh
from tunnelkit.debug.ranks.roster import Roster, RosterEntry
from tunnelkit.debug.ranks.sample import RankState
from tunnelkit.debug.ranks.selection import parse_selection
from tunnelkit.debug.ranks.text_errors import SelectionError

_NODES = ("node2", "a.b-c", "7x")
_WORDS = {
    "rank": "rank",
    "node": "node",
    "host": "node",
    "hosts": "node",
    "local": "local",
    "gpu": "local",
    "gpus": "local",
    "pp": "pp",
    "tp": "tp",
    "absent": "absent",
}
_TP = 4
_STATES = {
    "stopped": RankState.STOPPED,
    "running": RankState.RUNNING,
    "waiting": RankState.WAITING,
    "ended": RankState.ENDED,
}


@dataclass(frozen=True)
class Part:
    """A part of a selection: its text, and what it means.

    meant: of an entry (a term) or of a place in a dimension and its roster (a value). there: can
    what it names be found in a roster?
    """

    text: str
    meant: Callable[[RosterEntry, Roster], bool]
    there: Callable[[Roster], bool]
    dimension: str = ""
    negated: bool = False


def place(dimension: str, entry: RosterEntry, roster: Roster) -> int:
    if dimension == "rank":
        return entry.rank
    if dimension == "local":
        return entry.local_rank
    if dimension == "node":
        lowest = {
            node: min(one.rank for one in roster.entries if one.node == node)
            for node in {one.node for one in roster.entries}
        }
        return sorted(lowest, key=lowest.__getitem__).index(entry.node)
    return entry.rank // _TP if dimension == "pp" else entry.rank % _TP


def has(dimension: str, number: int, roster: Roster) -> bool:
    if dimension in ("pp", "tp"):
        return number < _TP
    return any(place(dimension, entry, roster) == number for entry in roster.entries)


_blank = st.sampled_from(["", "", "", " ", "\t "])
_small = st.integers(0, 6)


@st.composite
def _numbers(draw: st.DrawFn, dimension: str) -> Part:
    first, blank = draw(_small), draw(_blank)
    kind = draw(st.sampled_from(["one", "inclusive", "half open"]))
    if kind == "one":
        return Part(
            f"{first:0{draw(st.integers(1, 3))}}",
            lambda entry, roster: place(dimension, entry, roster) == first,
            lambda roster: has(dimension, first, roster),
        )
    if kind == "inclusive":
        last, apart = first + draw(_small), draw(st.integers(1, 3))
        return Part(
            f"{first}{blank}-{blank}{last}" + (f"/{apart}" if apart > 1 else ""),
            lambda entry, roster: (
                first <= place(dimension, entry, roster) <= last
                and (place(dimension, entry, roster) - first) % apart == 0
            ),
            lambda roster: has(dimension, first, roster) and has(dimension, last, roster),
        )
    start, stop = draw(st.none() | _small), draw(st.none() | _small | st.just(9_999_999))
    step = draw(st.none() | st.integers(1, 4))
    text = f"{'' if start is None else start}{blank}:{blank}{'' if stop is None else stop}"
    if step is not None or draw(st.booleans()):
        text += f":{blank}{step or ''}"

    def meant(entry: RosterEntry, roster: Roster) -> bool:
        at = place(dimension, entry, roster) - (start or 0)
        return at >= 0 and at % (step or 1) == 0 and (stop is None or at + (start or 0) < stop)

    return Part(text, meant, lambda roster: True)


def _node_name(name: str) -> Part:
    return Part(
        name,
        lambda entry, roster: entry.node == name,
        lambda roster: any(entry.node == name for entry in roster.entries),
    )


@st.composite
def _dimension(draw: st.DrawFn) -> Part:
    word = draw(st.sampled_from([*_WORDS]))
    name = _WORDS[word]
    value = _numbers(name)
    if name == "node":
        value |= st.sampled_from(_NODES).map(_node_name)
    values = draw(st.lists(value, min_size=1, max_size=3))
    blank = draw(_blank)
    text = f"{blank},{blank}".join(part.text for part in values)
    if len(values) > 1 or draw(st.booleans()):
        text = f"({blank}{text}{blank})"
    return Part(
        f"{word}{blank}={blank}{text}",
        lambda entry, roster: any(part.meant(entry, roster) for part in values),
        lambda roster: name != "absent" and all(part.there(roster) for part in values),
        dimension=name,
    )


@st.composite
def _other(draw: st.DrawFn) -> Part:
    kind = draw(st.sampled_from(["numbers", "state", "failed", "class", "all"]))
    if kind == "numbers":
        return draw(_numbers("rank"))
    if kind == "state":
        word, state = draw(st.sampled_from(list(_STATES.items())))
        return Part(word, lambda entry, roster: entry.state is state, lambda roster: True)
    if kind == "failed":
        return Part("failed", lambda entry, roster: entry.failed, lambda roster: True)
    if kind == "class":
        name = draw(st.sampled_from(["A", "B2", "C"]))
        return Part(
            f"@{name}",
            lambda entry, roster: entry.rank in roster.classes[name],
            lambda roster: (
                name in roster.classes
                and all(has("rank", rank, roster) for rank in roster.classes[name])
            ),
        )
    return Part(
        draw(st.sampled_from(["all", "*"])), lambda entry, roster: True, lambda roster: True
    )


def _negated(part: Part, blank: str) -> Part:
    return Part(
        f"!{blank}{part.text}",
        lambda entry, roster: not part.meant(entry, roster),
        part.there,
        part.dimension,
        not part.negated,
    )


@st.composite
def _term(draw: st.DrawFn, base: st.SearchStrategy[Part]) -> Part:
    part = draw(base)
    for blank in draw(st.lists(_blank, max_size=2)):
        part = _negated(part, blank)
    return part


_lists = st.lists(_term(_dimension()), min_size=1, max_size=3) | st.lists(
    _term(_other()), min_size=1, max_size=4
)


@st.composite
def _rosters(draw: st.DrawFn) -> Roster:
    """Ranks with gaps, on any node, in any order."""
    everyone = list(range(_TP * _TP))
    ranks = draw(st.permutations(everyone) | st.lists(st.sampled_from(everyone), unique=True))
    entries = tuple(
        RosterEntry(
            rank,
            draw(st.sampled_from(_NODES)),
            draw(st.integers(0, 4)),
            draw(st.sampled_from(RankState)),
            draw(st.booleans()),
        )
        for rank in ranks
    )
    members = st.sets(st.sampled_from(ranks) if ranks else st.integers(0, 3), max_size=3)
    names = draw(st.sets(st.sampled_from(["A", "B2", "C"])))
    classes = {name: tuple(sorted(draw(members | st.just({15})))) for name in sorted(names)}
    return Roster(entries, classes, Mesh(("pp", "tp"), (_TP, _TP)))


def expected(parts: list[Part], roster: Roster) -> tuple[int, ...]:
    """The ranks by asking each; () where the selection must be refused."""
    dimensions = [part.dimension for part in parts]
    if dimensions[0] and len(set(dimensions)) < len(dimensions):
        return ()
    if not all(part.there(roster) for part in parts):
        return ()

    def selected(entry: RosterEntry) -> bool:
        meant = [part.meant(entry, roster) for part in parts if not part.negated]
        excluded = [not part.meant(entry, roster) for part in parts if part.negated]
        if dimensions[0]:
            return all(meant) and not any(excluded)
        return (any(meant) or not meant) and not any(excluded)

    return tuple(sorted(entry.rank for entry in roster.entries if selected(entry)))


@given(_lists, _rosters(), _blank)
def test_a_selection_is_what_the_model_says(parts: list[Part], roster: Roster, blank: str) -> None:
    text = blank + f"{blank},{blank}".join(part.text for part in parts) + blank
    ranks = expected(parts, roster)
    if ranks:
        assert parse_selection(text).resolve(roster) == ranks
    else:
        with pytest.raises(SelectionError):
            parse_selection(text).resolve(roster)


@given(_term(_dimension()), _term(_other()), st.booleans(), _rosters())
def test_a_mix_is_refused_where_the_second_begins(
    dimension: Part, other: Part, swap: bool, roster: Roster
) -> None:
    first, second = (other, dimension) if swap else (dimension, other)
    with pytest.raises(SelectionError, match="don't mix") as caught:
        parse_selection(f"{first.text},{second.text}").resolve(roster)
    blanks = len(second.text) - len(second.text.lstrip())
    assert caught.value.column == len(first.text) + blanks + 2
