"""Node list expressions expand to exactly the names they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import SchedulerError
from tunnelkit.scheduler.nodelist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("node4", ("node4",)),
        ("node[1-3,7]", ("node1", "node2", "node3", "node7")),
        ("n[01-03]", ("n01", "n02", "n03")),
        ("n[8-11]", ("n8", "n9", "n10", "n11")),
        ("n[08-11],gpu1", ("n08", "n09", "n10", "n11", "gpu1")),
        ("a[01-03]b[1,2]", ("a01b1", "a01b2", "a02b1", "a02b2", "a03b1", "a03b2")),
        ("r1n[1-2].site.org", ("r1n1.site.org", "r1n2.site.org")),
        ("login-1,gpu-a100-[1]", ("login-1", "gpu-a100-1")),
    ],
)
def test_known_forms(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    ["n[", "n]", "n[1-", "n[]", "n[3-1]", "n[a-b]", "n[[1]]", "n[1 2]", "n[1];rm", "a b",
     "n[0-99999999]", "n[0-999]m[0-999]"],
)  # fmt: skip
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(SchedulerError):
        expand(text)


prefixes = st.from_regex(r"[a-z][a-z-]{0,5}", fullmatch=True)
ranges = st.tuples(st.integers(0, 300), st.integers(0, 20), st.integers(1, 5))


@given(st.lists(st.tuples(prefixes, st.lists(ranges, min_size=1, max_size=3)), max_size=4))
def test_what_is_folded_unfolds(groups: list[tuple[str, list[tuple[int, int, int]]]]) -> None:
    folded, names = [], []
    for prefix, spans in groups:
        words = []
        for first, more, width in spans:
            start, end = str(first).zfill(width), str(first + more).zfill(width)
            words.append(f"{start}-{end}" if more else start)
            names += [prefix + str(n).zfill(width) for n in range(first, first + more + 1)]
        folded.append(f"{prefix}[{','.join(words)}]")
    assert list(expand(",".join(folded))) == names


@given(st.text(alphabet="ab019[],- ", max_size=30))
def test_any_text_expands_or_is_refused(text: str) -> None:
    try:
        names = expand(text)
    except SchedulerError:
        return
    assert all(name and not set("[], ") & set(name) for name in names)
