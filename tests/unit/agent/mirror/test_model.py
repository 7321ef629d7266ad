"""Whatever a laptop and somebody on the cluster do, in any order: no content of theirs is lost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.unit.agent.mirror_side import (
    Side,
    delete,
    directory,
    file,
    link,
    parts_of,
    rmdir,
    sha,
    tree_of,
)

#: A node of the laptop's tree: text is a file, ("link", target), a dict is a directory.
_leaf = st.one_of(
    st.sampled_from(["one", "two", "three", ""]),
    st.sampled_from(["a", "b/c", "nowhere"]).map(lambda target: ("link", target)),
)
_names = st.sampled_from(["a", "b", "c"])
_trees = st.dictionaries(
    _names,
    st.recursive(_leaf, lambda inner: st.dictionaries(_names, inner, max_size=3), max_leaves=6),
    max_size=3,
)
_paths = st.lists(_names, min_size=1, max_size=3).map("/".join)
_foreign = st.lists(
    st.tuples(
        st.sampled_from(["write", "append", "remove", "mkdir", "link", "outside", "move"]),
        _paths,
        _paths,
    ),
    max_size=3,
)
_steps = st.lists(
    st.tuples(_trees, st.sampled_from(["conflict", "backup"]), _foreign, _foreign, _foreign),
    min_size=1,
    max_size=5,
)


def flat(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, node in tree.items():
        path = above + name
        found[path] = None if isinstance(node, dict) else node
        if isinstance(node, dict):
            found.update(flat(node, path + "/"))
    return found


class Laptop:
    """Knows what it sent as a mirror does: digests of all versions, the stamp of the last."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.sent: dict[str, dict[str, Any]] = {}
        self.dirs: set[str] = set()

    def parcels(self, wanted: dict[str, Any], unlike: str) -> list[Any]:
        parcels: list[Any] = []
        leaves = {path: node for path, node in wanted.items() if node is not None}
        for path in sorted(self.dirs - {path for path in wanted if wanted[path] is None}):
            parcels.append(rmdir(path))
        for path in sorted(set(self.sent) - set(leaves)):
            parcels.append(delete(path, self.sent[path], unlike=unlike))
        for path, node in wanted.items():
            if node is None:
                parcels.append(directory(path, new=path not in self.dirs))
            elif isinstance(node, str):
                parcels.append(file(path, node.encode(), self.sent.get(path), unlike=unlike))
            else:
                parcels.append(link(path, node[1], self.sent.get(path), unlike=unlike))
        return parcels

    def learn(self, wanted: dict[str, Any], results: dict[str, Any]) -> None:
        proof = self.side.proof
        for path in [path for path in self.sent if wanted.get(path) is None]:
            if results.get(path, ["", ""])[0] != "blocked":
                del self.sent[path]
        for path, node in wanted.items():
            if node is not None and results.get(path, ["same"])[0] in ("same", "replaced"):
                data = (node if isinstance(node, str) else node[1]).encode()
                expect = {"stamp": proof.get(path, ""), "size": -1, "mtime_s": None}
                self.sent[path] = {**expect, "digests": [sha(data)]}
        self.dirs = {path for path, node in wanted.items() if node is None}


class Somebody:
    """Edits on the cluster. `theirs`: the content of theirs that must be found somewhere."""

    def __init__(self, root: Path, outside: Path) -> None:
        self.root, self.outside = root, outside
        self.theirs: set[Any] = set()
        self._count = 0

    def edit(self, what: str, path: str, other: str) -> None:
        place, target = self.root / path, self.root / other
        ways = [*place.parents, *target.parents]
        if what in ("write", "append"):
            ways.append(place)
        if any(way.is_symlink() for way in ways if self.root in way.parents):
            # They would write through a link of their own: no business of ours.
            return
        self._count += 1
        mark = f"foreign {self._count}"
        try:
            if what in ("write", "append"):
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("w" if what == "write" else "a") as stream:
                    stream.write(mark)
            elif what == "remove":
                shutil.rmtree(place) if place.is_dir() else place.unlink()
            elif what == "mkdir":
                place.mkdir(parents=True)
            elif what == "move":
                place.rename(target)
            else:
                _clear(place)
                place.symlink_to(self.outside if what == "outside" else mark)
        except (OSError, shutil.Error):
            pass
        self.look()

    def look(self) -> None:
        self.theirs = self.found()

    def found(self) -> set[Any]:
        found: set[Any] = set()
        for node in tree_of(self.root).values():
            if (isinstance(node, bytes) and b"foreign" in node) or (
                isinstance(node, tuple) and "foreign" in str(node[-1])
            ):
                found.add(node)
        return found


def _clear(place: Path) -> None:
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir():
        shutil.rmtree(place)


class _Gate:
    """Somebody is quick: edits after all was checked."""

    def __init__(self, edits: Callable[[], None]) -> None:
        self._edits = edits

    def __enter__(self) -> None:
        self._edits()

    def __exit__(self, *exc: Any) -> None:
        pass


_DIRECTORY_MOVED_LATE: list[Any] = [
    ({"b": {"a": "one"}}, "backup", [], [], []),
    ({"b": {"a": "one", "c": "two"}}, "conflict", [], [], [("move", "b", "c")]),
    ({"b": {"a": "one", "c": "two"}}, "conflict", [], [], []),
]


@settings(max_examples=200, phases=[Phase.explicit, Phase.generate])
@example(_DIRECTORY_MOVED_LATE)
@given(_steps)
def test_nobodys_content_is_lost(steps: list[Any]) -> None:
    base = Path(tempfile.mkdtemp(prefix="tk-model-"))
    root, outside = base / "root", base / "foreign-outside"
    root.mkdir()
    outside.mkdir()
    for name in ("a", "b", "c"):
        (outside / name).write_text("one")
    untouched = tree_of(outside)
    side = Side(root)
    try:
        laptop, somebody = Laptop(side), Somebody(root, outside)
        for tree, unlike, before, between, late in steps:
            _step(laptop, somebody, flat(tree), unlike, before, between, late)
            assert tree_of(outside) == untouched
    finally:
        side.close()
        shutil.rmtree(base)


def _step(
    laptop: Laptop,
    somebody: Somebody,
    wanted: dict[str, Any],
    unlike: str,
    before: list[Any],
    between: list[Any],
    late: list[Any],
) -> None:
    side, root = laptop.side, somebody.root

    def edit(edits: list[Any]) -> None:
        for one in edits:
            somebody.edit(*one)

    edit(before)
    side.begin()
    for parcel in laptop.parcels(wanted, unlike):
        header, data = parcel if isinstance(parcel, tuple) else (parcel, b"")
        assert side.send(header, data), side.answers
    edit(between)
    side._batches._gate = _Gate(lambda: edit(late))
    results = side.commit()
    missing = somebody.theirs - somebody.found()
    assert not missing, (missing, results)
    assert parts_of(root) == []
    now = tree_of(root)
    for path, node in wanted.items():
        if node is None or results.get(path, ["same"])[0] not in ("same", "replaced"):
            continue
        if path in side.differ:  # it went in that very moment, with its directory
            assert late and path not in now and path not in side.proof, path
            continue
        assert now.get(path) == (node.encode() if isinstance(node, str) else node), path
        assert path in side.proof
    laptop.learn(wanted, results)
