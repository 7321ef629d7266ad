"""An update of a few paths finds exactly what a scan of everything would."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunnelkit.mirror.api import MirrorHalted
from tunnelkit.mirror.tree.ignore import IgnoreRules
from tunnelkit.mirror.tree.scanner import Scan, Scanner


def agree(root: Path, scan: Scan) -> None:
    fresh = Scanner(str(root), IgnoreRules()).scan()
    assert scan.entries == fresh.entries
    assert scan.unreadable == fresh.unreadable
    assert scan.children == fresh.children
    assert scan.rules.keys() == fresh.rules.keys()
    closed = {base for base, rules in scan.rules.items() if rules.closed}
    assert closed == {base for base, rules in fresh.rules.items() if rules.closed}


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.scanner = Scanner(str(root), IgnoreRules())
        self.scan = self.scanner.scan()

    def update(self, *paths: str) -> set[str]:
        self.scan, looked = self.scanner.update(self.scan, set(paths))
        agree(self.root, self.scan)
        return looked

    def write(self, path: str, text: str = "x") -> None:
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c.py").write_text("1")
    (tmp_path / "a/d.py").write_text("2")
    (tmp_path / "e.py").write_text("3")
    return Tree(tmp_path)


def test_a_saved_file_is_the_only_one_looked_at(tree: Tree) -> None:
    before = tree.scan.entries["a/b/c.py"]
    tree.write("a/b/c.py", "other")
    assert tree.update("a/b/c.py") == {"a/b/c.py"}
    assert tree.scan.entries["a/b/c.py"] != before


def test_only_what_is_named_is_looked_at(tree: Tree) -> None:
    """Otherwise this would be a scan of everything in disguise."""
    old = tree.scan.entries["e.py"]
    tree.write("e.py", "longer")
    tree.scanner.update(tree.scan, {"a/d.py"})
    assert tree.scan.entries["e.py"] == old


def test_a_new_directory_comes_with_all_that_is_in_it(tree: Tree) -> None:
    tree.write("n/m/o.py")
    tree.write("n/.gitignore", "*.log")
    tree.write("n/m/p.log")
    assert tree.update("n") == {"n", "n/m", "n/.gitignore", "n/m/o.py"}


def test_a_file_in_a_directory_that_nobody_named(tree: Tree) -> None:
    tree.write("n/m/o.py")
    assert {"n", "n/m", "n/m/o.py"} <= tree.update("n/m/o.py")


def test_a_directory_that_is_gone_tells_its_children(tree: Tree) -> None:
    shutil.rmtree(tree.root / "a")
    assert tree.update("a") == {"a", "a/b", "a/b/c.py", "a/d.py"}
    assert set(tree.scan.entries) == {"e.py"}


def test_a_renamed_directory(tree: Tree) -> None:
    (tree.root / "a").rename(tree.root / "z")
    assert {"a/b/c.py", "z/b/c.py"} <= tree.update("a", "z")


def test_a_directory_becomes_a_file_and_a_link(tree: Tree) -> None:
    shutil.rmtree(tree.root / "a")
    tree.write("a")
    tree.update("a")
    (tree.root / "a").unlink()
    (tree.root / "a").symlink_to("/etc")
    tree.update("a", "a/passwd")
    assert set(tree.scan.entries) == {"a", "e.py"}


def test_a_swapped_parent_that_nobody_named_is_noticed(tree: Tree, tmp_path: Path) -> None:
    """A path below must not be looked up through the link that stands there now."""
    (tree.root / "a").rename(tree.root / "z")
    (tree.root / "a").symlink_to("z")
    tree.scanner.update(tree.scan, {"a/d.py"})
    assert {path for path in tree.scan.entries if path.startswith("a")} == {"a"}


def test_ignored_and_odd_kinds_stay_out(tree: Tree) -> None:
    tree.write(".gitignore", "*.log\nbuild/\n")
    tree.update(".gitignore")
    tree.write("x.log")
    tree.write("build/y")
    tree.write("a/__pycache__/q.pyc")
    os.mkfifo(tree.root / "fifo")
    tree.update("x.log", "build", "build/y", "a/__pycache__", "a/__pycache__/q.pyc", "fifo")


@pytest.mark.parametrize("name", [".gitignore", ".tkignore"])
def test_a_file_of_rules_has_everything_looked_at(tree: Tree, name: str) -> None:
    tree.write(f"a/{name}", "b/\n")
    assert {"a/b", "a/b/c.py", "e.py"} <= tree.update(f"a/{name}")
    (tree.root / "a" / name).unlink()
    tree.update(f"a/{name}")
    assert "a/b/c.py" in tree.scan.entries


def test_a_virtual_environment_comes_and_goes(tree: Tree) -> None:
    tree.write("env/lib/x.py")
    tree.update("env")
    tree.write("env/pyvenv.cfg")
    tree.update("env/pyvenv.cfg")
    tree.write("env/lib/y.py")
    tree.update("env/lib/y.py", "env/lib")
    (tree.root / "env/pyvenv.cfg").unlink()
    tree.update("env/pyvenv.cfg")
    assert "env/lib/y.py" in tree.scan.entries


def test_a_virtual_environment_in_a_directory_that_goes(tree: Tree) -> None:
    tree.write("p/env/pyvenv.cfg")
    tree.update("p")
    shutil.rmtree(tree.root / "p")
    tree.write("p/env/x.py")
    tree.update("p")
    assert "p/env/x.py" in tree.scan.entries


def test_rules_of_a_directory_that_came_back_without_them(tree: Tree) -> None:
    tree.write("p/q/.gitignore", "*.log")
    tree.write("p/q/x.log")
    tree.update("p")
    shutil.rmtree(tree.root / "p")
    tree.update("p")
    tree.write("p/q/x.log")
    tree.update("p")
    assert "p/q/x.log" in tree.scan.entries


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_a_directory_that_can_be_read_no_more(tree: Tree) -> None:
    (tree.root / "a/b").chmod(0)
    try:
        tree.update("a/b")
        assert set(tree.scan.unreadable) == {"a/b"}
    finally:
        (tree.root / "a/b").chmod(0o755)
    tree.update("a/b")
    assert not tree.scan.unreadable


def test_a_root_that_is_gone_halts(tree: Tree) -> None:
    shutil.rmtree(tree.root)
    with pytest.raises(MirrorHalted):
        tree.scanner.update(tree.scan, {"e.py"})


# Few names, so that edits hit the same paths again and again.
_NAMES = st.sampled_from(["a", "b", "c.py", "x.log", "build", "__pycache__"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_RULES = st.sampled_from(["*.log\n", "build/\n", "!x.log\n", "/a\n", "b/*\n", ""])
_EDITS = st.one_of(
    st.tuples(st.just("write"), _PATHS, st.just("")),
    st.tuples(st.just("mkdir"), _PATHS, st.just("")),
    st.tuples(st.just("remove"), _PATHS, st.just("")),
    st.tuples(st.just("move"), _PATHS, _PATHS),
    st.tuples(st.just("link"), _PATHS, _NAMES),
    st.tuples(st.just("mode"), _PATHS, st.just("")),
    st.tuples(st.just("rules"), _PATHS, _RULES),
    st.tuples(st.just("venv"), _PATHS, st.just("")),
)


@contextmanager
def _made() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _edit(root: Path, edit: tuple[str, str, str]) -> set[str]:
    """Do it, as far as it can be done; the paths that file events would name."""
    what, path, other = edit
    full = root / path
    match what:
        case "write":
            made = _parents(root, full)
            if full.is_symlink():
                full.unlink()
            full.write_text(full.read_text() + "x" if full.is_file() else "x")
            return made | {path}
        case "mkdir":
            made = _parents(root, full)
            full.mkdir(exist_ok=True)
            return made | {path}
        case "remove":
            shutil.rmtree(full) if full.is_dir() and not full.is_symlink() else full.unlink()
            return {path}
        case "move":
            target = root / other
            made = _parents(root, target)
            with suppress(OSError):
                full.rename(target)
            return made | {path, other}
        case "link":
            made = _parents(root, full)
            with suppress(OSError):
                full.symlink_to(other)
            return made | {path}
        case "mode":
            if not full.is_symlink():
                full.chmod(full.stat().st_mode ^ 0o011)
            return {path}
        case "rules" | "venv":
            name = ".gitignore" if what == "rules" else "pyvenv.cfg"
            inner = full / name
            made = _parents(root, inner)
            with suppress(OSError):
                inner.unlink() if inner.exists() and not other else inner.write_text(other)
            return made | {f"{path}/{name}"}
    raise AssertionError(what)


def _parents(root: Path, full: Path) -> set[str]:
    made = set()
    for above in reversed(full.relative_to(root).parents):
        directory = root / above
        if directory.is_symlink():
            raise NotADirectoryError  # an edit would happen elsewhere than it is named
        if not directory.exists():
            directory.mkdir()
            made.add(above.as_posix())
    return made


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(st.lists(_EDITS, min_size=1, max_size=6), min_size=1, max_size=6))
def test_random_edits(rounds: list[list[tuple[str, str, str]]]) -> None:
    with _made() as root:
        tree = Tree(root)
        for edits in rounds:
            touched: set[str] = set()
            before = dict(tree.scan.entries)
            for edit in edits:
                if any(part.is_symlink() for part in (root / edit[1]).parents):
                    continue
                with suppress(OSError):
                    touched |= _edit(root, edit)
                    continue
                # It failed half-way, after it had made directories.
                touched.update(_above(edit[1]), _above(edit[2]) if edit[0] == "move" else ())
            looked = tree.update(*touched)
            after = tree.scan.entries
            changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
            assert changed <= looked


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def test_a_root_that_is_gone_is_no_deletion(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("1")
    scanner = Scanner(str(root), IgnoreRules())
    scan = scanner.scan()
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(MirrorHalted, match="can't be read"):
        scanner.update(scan, {"a"})
    assert "a" in scan.entries
    # It is asked for anew each time.
    (tmp_path / "elsewhere").rename(root)
    (root / "a").unlink()
    scan, _ = scanner.update(scan, {"a"})
    assert scan.entries == {}


def test_much_that_is_new_is_told_before_all_is_found(tree: Tree) -> None:
    """A directory before what is in it; nothing that is left out; nothing of what was there."""
    for number in range(1_300):
        tree.write(f"n/d{number // 20}/f{number}.py")
        tree.write(f"n/d{number // 20}/f{number}.log")
    tree.write("n/.gitignore", "*.log")
    tree.write("n/venv/pyvenv.cfg")
    tree.write("n/venv/lib/x.py")
    told: list[str] = []

    def found(paths: list[str]) -> None:
        assert all(path in tree.scan.entries for path in paths), "the scan knows of them"
        told.extend(paths)

    tree.scan, looked = tree.scanner.update(tree.scan, {"n", "a"}, found)
    assert 1_000 <= len(told) < len(looked)
    assert len(set(told)) == len(told)
    assert set(told) <= {path for path in tree.scan.entries if path.startswith("n")}
    for number, path in enumerate(told):
        above = path.rpartition("/")[0]
        assert not above or above in told[:number]
    agree(tree.root, tree.scan)


def test_little_that_is_new_is_not_told(tree: Tree) -> None:
    tree.write("n/o.py")
    told: list[list[str]] = []
    tree.scan, _ = tree.scanner.update(tree.scan, {"n", "e.py"}, told.append)
    assert told == []
    agree(tree.root, tree.scan)
