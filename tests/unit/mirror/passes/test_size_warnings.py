"""Warnings about big files and trees: what is named, and that it is said once."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.mirror.passes.size_warnings import SizeWatch, heaviest
from tunnelkit.mirror.tree.scanner import DIR, FILE, Entry

MB = 1_000_000


def entries(sizes: Mapping[str, int]) -> dict[str, Entry]:
    found = {path: Entry(FILE, 0o644, size, 0, 0, 0) for path, size in sizes.items()}
    for path in sizes:
        parts = path.split("/")[:-1]
        for n in range(len(parts)):
            found["/".join(parts[: n + 1])] = Entry(DIR, 0o755, 0, 0, 0, 0)
    return found


def test_a_big_file_is_told_of_once() -> None:
    said: list[str] = []
    watch = SizeWatch(said.append)
    tree = entries({"data/big.bin": 150 * MB, "at the limit": 100 * MB, "main.py": 10})
    watch.look(tree, tree)
    assert said == [
        "data/big.bin is big (150 MB); to leave it out, write /data/big.bin into .tkignore"
    ]
    watch.look(tree, tree)
    assert len(said) == 1
    assert watch.current() == tuple(said)
    assert watch.news() == said
    assert watch.news() == []


def test_what_is_gone_or_small_now_is_forgotten() -> None:
    said: list[str] = []
    watch = SizeWatch(said.append)
    tree = entries({"a": 101 * MB, "b": 102 * MB})
    watch.look(tree, tree)
    assert [text[0] for text in said] == ["b", "a"]
    watch.look({}, entries({"a": 101 * MB, "b": 5}))
    assert [text[0] for text in watch.current()] == ["a"]
    watch.look({}, {})
    assert watch.current() == ()
    watch.look(tree, tree)
    assert len(said) == 4


def test_a_big_tree_names_what_most_of_it_is_in() -> None:
    said: list[str] = []
    watch = SizeWatch(said.append)
    runs = {f"data/runs/{n}.npy": 90 * MB for n in range(20)}
    tree = entries({**runs, "data/readme": 10, "src/a.py": 300 * MB, "src/b.py": 1})
    watch.look(tree, tree)
    assert said[1] == (
        "2.1 GB in 23 files are to be sent, the biggest in data/runs/ (1.8 GB); "
        "to leave it out, write /data/runs/ into .tkignore"
    )
    assert len(said) == 2
    watch.look({}, tree)
    assert len(watch.current()) == 2
    watch.look({}, entries({"src/a.py": 300 * MB}))
    assert len(watch.current()) == 1


def test_names_that_a_pattern_must_quote() -> None:
    said: list[str] = []
    watch = SizeWatch(said.append, file_bytes=10)
    tree = entries({"a*[b]": 30, "new\nline": 20})
    watch.look(tree, tree)
    assert said[0].endswith(r"write /a\*\[b\] into .tkignore")
    assert said[1] == "'new\\nline' is big (20 B); to leave it out, name it in .tkignore"


SIZES = st.dictionaries(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join), st.integers(0, 9)
)


@given(SIZES)
def test_the_heaviest_is_there_and_holds_the_most_at_its_level(sizes: dict[str, int]) -> None:
    # No file may stand where another's directory is.
    sizes = {
        path: size
        for path, size in sizes.items()
        if not any(other.startswith(path + "/") for other in sizes)
    }
    tree = entries(sizes)
    best = heaviest(tree)
    if not sum(sizes.values()):
        assert best == ""
        return
    assert best.rstrip("/") in tree
    held = sum(
        size
        for path, size in sizes.items()
        if path == best or (best.endswith("/") and path.startswith(best))
    )
    tops = {path.split("/")[0] for path in sizes}
    top = max(
        sum(size for path, size in sizes.items() if path.split("/")[0] == one) for one in tops
    )
    assert held > 0
    assert held <= top
