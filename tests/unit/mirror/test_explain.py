"""`tk sync --explain`: the rule that decides, and that it agrees with the scan."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunnelkit.cli.views.sync_explain import line
from tunnelkit.mirror.explain import Explanation, explain
from tunnelkit.mirror.tree.ignore import IgnoreRules
from tunnelkit.mirror.tree.scanner import Scanner


def fill(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        full = root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)


def ask(root: Path, path: str, *exclude: str, never: tuple[str, ...] = ()) -> Explanation:
    full = os.path.join(root, path)
    return explain(str(root), IgnoreRules.from_exclude(exclude, never=never), full)


def told(root: Path, path: str, *exclude: str) -> str:
    return line(ask(root, path, *exclude).to_json())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    fill(
        made,
        {
            ".gitignore": "# data\n\ndata/\n*.log\n",
            ".tkignore": "!keep.log\nsub/*.csv\n",
            "main.py": "",
            "data/raw/a.bin": "",
            "keep.log": "",
            "sub/x.log": "",
            "sub/a.csv": "",
            "sub/b.ckpt": "",
            "env/pyvenv.cfg": "",
            "env/lib/a.py": "",
            ".git/HEAD": "",
            "a.pyc": "",
        },
    )
    return made


def test_one_line_names_the_rule(root: Path) -> None:
    assert told(root, "main.py") == "main.py: mirrored: no rule leaves it out"
    assert told(root, "data/") == "data: not mirrored: left out by .gitignore:3: data/"
    assert told(root, "data/raw/a.bin") == (
        "data/raw/a.bin: not mirrored: its directory data is left out by .gitignore:3: data/"
    )
    assert told(root, "keep.log") == "keep.log: mirrored: taken back by .tkignore:1: !keep.log"
    assert told(root, "sub/x.log") == "sub/x.log: not mirrored: left out by .gitignore:4: *.log"
    assert told(root, "sub/a.csv") == "sub/a.csv: not mirrored: left out by .tkignore:2: sub/*.csv"
    assert told(root, "sub/b.ckpt", "*.ckpt") == (
        "sub/b.ckpt: not mirrored: left out by [mirror] exclude: *.ckpt"
    )
    assert told(root, "a.pyc") == (
        "a.pyc: not mirrored: left out by default: *.pyc; `!/a.pyc` in .tkignore takes it back"
    )
    assert told(root, ".git") == (
        ".git: not mirrored: left out by default: .git; `!/.git` in .tkignore takes it back"
    )
    assert told(root, "env/lib/a.py") == (
        "env/lib/a.py: not mirrored: its directory env is left out by default: "
        "a virtual environment (pyvenv.cfg)"
    )
    assert told(root, "new.log") == "new.log: not mirrored: left out by .gitignore:4: *.log"
    assert told(root, "new.py") == (
        "new.py: there is no such file here; it would be mirrored: no rule leaves it out"
    )


@pytest.mark.parametrize("name", [".git", "a.pyc", "env"])
def test_the_advice_is_right(root: Path, name: str) -> None:
    advice = ask(root, name).reason.split("`")[1]
    with open(root / ".tkignore", "a") as stream:
        stream.write(advice + "\n")
    assert ask(root, name).mirrored


def test_a_nested_file_is_named_with_its_directory(root: Path) -> None:
    fill(root, {"sub/deep/.tkignore": "\n*.txt\n", "sub/deep/a.txt": ""})
    found = ask(root, "sub/deep/a.txt")
    assert str(found.rule) == "sub/deep/.tkignore:2: *.txt"
    assert found.to_json()["rule"] == {
        "source": "sub/deep/.tkignore",
        "line": 2,
        "pattern": "*.txt",
    }


def test_outside_and_the_root_itself(root: Path) -> None:
    found = ask(root, "../elsewhere/a.py")
    assert (found.mirrored, found.kind) == (False, "outside")
    assert found.reason == f"it lies outside of {root}"
    assert ask(root, "sub/../main.py").path == "main.py"
    assert ask(root, ".").mirrored
    assert ask(root, "").path == "."


def test_a_path_by_another_name_of_the_root(root: Path) -> None:
    other = root.parent / "other"
    other.symlink_to(root)
    found = explain(str(root), IgnoreRules(), str(other / "sub/x.log"))
    assert (found.path, found.mirrored) == ("sub/x.log", False)
    assert explain(str(root), IgnoreRules(), str(other)).path == "."


def test_symlinks(root: Path) -> None:
    (root / "to_main").symlink_to("main.py")
    (root / "out").symlink_to(root.parent)
    (root / "to_sub").symlink_to("sub")
    found = ask(root, "to_main")
    assert found.mirrored
    assert found.reason == "a symlink, sent as one; no rule leaves it out"
    found = ask(root, "out")
    assert (found.mirrored, found.kind) == (True, "symlink")
    assert found.reason == (
        f"a symlink, sent as one; it leads out of the directory, and {root.parent} isn't sent"
    )
    found = ask(root, "to_sub/b.ckpt")
    assert (found.path, found.mirrored) == ("to_sub/b.ckpt", False)
    assert (
        found.reason == "to_sub is a symlink, sent as one and not followed (it leads to sub/b.ckpt)"
    )
    assert "leads out of the directory" in ask(root, "out/x/y").reason


def test_what_is_too_special(root: Path) -> None:
    os.mkfifo(root / "fifo")
    assert told(root, "fifo") == "fifo: not mirrored: it is a fifo"
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.getcwd()
        os.chdir(root)  # the name of a socket may not be long
        try:
            sock.bind("sock")
        finally:
            os.chdir(here)
    assert told(root, "sock") == "sock: not mirrored: it is a socket"


def test_below_a_file(root: Path) -> None:
    found = ask(root, "main.py/x")
    assert (found.mirrored, found.exists) == (False, False)
    assert found.reason == "main.py is no directory"


def test_own_files(root: Path) -> None:
    found = ask(root, "state/s.db", never=("state",))
    assert not found.mirrored
    assert found.reason == "its directory state is left out: tk keeps its own files there"


def test_odd_names_are_one_line(root: Path) -> None:
    (root / "new\nline.log").touch()
    assert told(root, "new\nline.log").count("\n") == 0


LINES = st.lists(
    st.sampled_from(
        ["a", "a/", "/a", "*.py", "b*", "a/**", "*/", "*", "**/b", "d/", "venv/"]
    ).flatmap(lambda text: st.sampled_from([text, "!" + text])),
    max_size=3,
)
PATHS = st.lists(
    st.sampled_from(["a", "b", "c.py", "d", "venv", "pyvenv.cfg"]), min_size=1, max_size=4
).map("/".join)
RULE_FILES = st.dictionaries(
    st.tuples(
        st.sampled_from(["", "a/", "b/", "a/b/"]), st.sampled_from([".gitignore", ".tkignore"])
    ),
    LINES,
    max_size=4,
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(paths=st.sets(PATHS, min_size=2, max_size=10), rules=RULE_FILES, exclude=LINES)
def test_it_agrees_with_the_scan(
    paths: set[str], rules: dict[tuple[str, str], list[str]], exclude: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(os.path.realpath(name))
        for path in sorted(paths):
            if not any((top / path).parents[n].is_file() for n in range(path.count("/"))):
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                if not (top / path).is_dir():
                    (top / path).touch()
        for (base, file), lines in rules.items():
            if (top / base).is_dir():
                (top / base / file).write_text("\n".join(lines) + "\n")
        scan = Scanner(str(top), IgnoreRules.from_exclude(exclude)).scan()
        for directory, dirs, files in os.walk(top):
            for one in [*dirs, *files]:
                path = os.path.relpath(os.path.join(directory, one), top)
                assert ask(top, path, *exclude).mirrored == (path in scan.entries), path
