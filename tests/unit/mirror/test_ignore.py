"""Ignore rules: by hand, and against git itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunnelkit.errors import ConfigError
from tunnelkit.mirror.ignore import REPLACED_DIR, IgnoreRules
from tunnelkit.mirror.scan import DIR, Scanner


def mirrored(root: Path, exclude: tuple[str, ...] = ()) -> set[str]:
    scan = Scanner(str(root), IgnoreRules.from_exclude(exclude)).scan()
    return {path for path, entry in scan.entries.items() if entry.kind != DIR}


def fill(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        full = root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)


def test_whitelist_idiom_brings_no_git_along(tmp_path: Path) -> None:
    fill(tmp_path, {".gitignore": "*\n!*/\n!*.py\n", "a/b.py": "", "a/b.txt": "", ".git/x.py": ""})
    assert mirrored(tmp_path) == {"a/b.py"}


def test_exclude_has_the_last_word(tmp_path: Path) -> None:
    fill(tmp_path, {".gitignore": "data/\n", "data/a": "", "venv/b": "", "c.txt": ""})
    assert mirrored(tmp_path, ("!data/", "!venv/", "*.txt")) == {".gitignore", "data/a", "venv/b"}


def test_what_was_set_aside_is_never_mirrored(tmp_path: Path) -> None:
    fill(tmp_path, {f"{REPLACED_DIR}/a": "", f"sub/{REPLACED_DIR}/a": ""})
    assert mirrored(tmp_path, ("!*",)) == {f"sub/{REPLACED_DIR}/a"}


def test_a_line_that_is_no_pattern(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exclude"):
        IgnoreRules.from_exclude(["!"])
    fill(tmp_path, {".gitignore": "!\n*.log\n", "a.log": "", "b": ""})
    assert mirrored(tmp_path) == {".gitignore", "b"}


def test_changed_rules_are_seen_by_the_next_scan(tmp_path: Path) -> None:
    fill(tmp_path, {"a.log": "", "s/b.log": "", "s/c": ""})
    scanner = Scanner(str(tmp_path), IgnoreRules())
    assert set(scanner.scan().entries) == {"a.log", "s", "s/b.log", "s/c"}
    fill(tmp_path, {"s/.gitignore": "*.log\n"})
    assert set(scanner.scan().entries) == {"a.log", "s", "s/.gitignore", "s/c"}
    fill(tmp_path, {".gitignore": "s/\n"})
    assert set(scanner.scan().entries) == {".gitignore", "a.log"}
    (tmp_path / ".gitignore").unlink()
    (tmp_path / "s/.gitignore").unlink()
    assert set(scanner.scan().entries) == {"a.log", "s", "s/b.log", "s/c"}


NAMES = st.sampled_from(["a", "b", "c.py", "d.log", "ab"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
PATTERNS = st.sampled_from(
    [
        "a",
        "a/",
        "/a",
        "/a/",
        "a/b",
        "a/**",
        "a/*",
        "**/b",
        "**/b/",
        "*/",
        "*",
        "*.py",
        "*.log",
        "[ab]",
        "?.py",
        "a/**/b",
        "/*/b",
        "b/",
        "#",
        "ab*",
        "/**",
        "a/**/",
    ]
).flatmap(lambda text: st.sampled_from([text, "!" + text]))
IGNORE_FILES = st.dictionaries(
    st.sampled_from(["", "a/", "b/", "a/b/"]),
    st.lists(PATTERNS, min_size=1, max_size=4),
    max_size=3,
)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle here")
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(paths=st.sets(PATHS, min_size=3, max_size=12), rules=IGNORE_FILES)
def test_same_as_git(paths: set[str], rules: dict[str, list[str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path in sorted(paths):
            if not any((root / path).parents[n].is_file() for n in range(path.count("/"))):
                full = root / path
                full.parent.mkdir(parents=True, exist_ok=True)
                if not full.is_dir():
                    full.touch()
        for base, lines in rules.items():
            if (root / base).is_dir():
                (root / base / ".gitignore").write_text("\n".join(lines) + "\n")
        env = {"PATH": os.environ["PATH"], "HOME": name, "GIT_CONFIG_NOSYSTEM": "1"}

        def git(*argv: str) -> str:
            return subprocess.run(
                ["git", *argv], cwd=root, env=env, check=True, capture_output=True, text=True
            ).stdout

        git("init", "-q", ".")
        listed = git("ls-files", "-z", "--others", "--exclude-standard")
        assert mirrored(root) == {path for path in listed.split("\0") if path}
