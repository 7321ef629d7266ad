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
from tunnelkit.mirror.passes.local_changes import interesting
from tunnelkit.mirror.remote.owner import OWNER_FILE
from tunnelkit.mirror.tree.ignore import REPLACED_DIR, IgnoreRules
from tunnelkit.mirror.tree.scanner import DIR, Scanner


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


def test_the_owners_mark_is_never_mirrored(tmp_path: Path) -> None:
    fill(tmp_path, {OWNER_FILE: "", "a": "", f"sub/{OWNER_FILE}": ""})
    assert mirrored(tmp_path, ("!*",)) == {"a", f"sub/{OWNER_FILE}"}


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


def test_tkignore_beats_gitignore(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            ".gitignore": "*.so\nbuild/\n",
            ".tkignore": "!*.so\n*.csv\n",
            "a.so": "",
            "b.csv": "",
            "build/c.so": "",
            "sub/.gitignore": "*.so\n!d.csv\n",
            "sub/d.csv": "",
            "sub/e.so": "",
            "deep/.tkignore": "*.so\n!f.csv\n",
            "deep/f.csv": "",
            "deep/g.so": "",
        },
    )
    found = {path for path in mirrored(tmp_path) if not path.endswith("ignore")}
    # Nothing is taken back from inside a directory that is left out, as with git.
    assert found == {"a.so", "sub/e.so", "deep/f.csv"}


def test_tkignore_takes_back_defaults_that_it_names(tmp_path: Path) -> None:
    files = {".git/HEAD": "", "node_modules/a.js": "", "b.pyc": "", "x/__pycache__/c.txt": ""}
    fill(tmp_path, {".tkignore": "!/.git/\n!node_modules\n!*.pyc\n", **files})
    found = mirrored(tmp_path) - {".tkignore"}
    assert found == {".git/HEAD", "node_modules/a.js", "b.pyc"}


def test_the_whitelist_idiom_in_tkignore(tmp_path: Path) -> None:
    fill(tmp_path, {".tkignore": "*\n!*/\n!.*\n!*.py\n", "a/b.py": "", "a/c": "", ".git/d.py": ""})
    assert mirrored(tmp_path) == {"a/b.py", ".tkignore"}


def test_bytecode_is_left_out_but_not_a_directory_of_that_name(tmp_path: Path) -> None:
    fill(tmp_path, {"a.pyc": "", "b.pyc/c.txt": "", "d.py": "", ".gitignore": "!*.pyc\n"})
    assert mirrored(tmp_path) == {"b.pyc/c.txt", "d.py", ".gitignore"}


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (".#train.py", ".#*"),
        ("#train.py#", "#*#"),
        ("train.py~", "?*~"),
        (".train.py.swp", ".*.sw[a-p]"),
        ("..env.swo", ".*.sw[a-p]"),
        (".train.py.kate-swp", ".*.kate-swp"),
        ("train.pyc", "*.pyc"),
        ("train.swp", None),
        ("#notes", None),
        (".env", None),
        ("~", None),
        ("c", None),
    ],
)
def test_what_editors_write_before_a_save_is_left_out(name: str, pattern: str | None) -> None:
    rule = IgnoreRules().rule_for(name, name, False)
    assert (rule and rule.pattern) == pattern
    assert IgnoreRules().rule_for(name, name, True) is None


def test_a_virtual_environment_by_its_mark(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            "tools/env-3.12/pyvenv.cfg": "",
            "tools/env-3.12/lib/a.py": "",
            "tools/b.py": "",
            "wanted/pyvenv.cfg": "",
            "wanted/c.py": "",
            ".tkignore": "!/wanted/\n",
        },
    )
    assert mirrored(tmp_path) == {"tools/b.py", "wanted/pyvenv.cfg", "wanted/c.py", ".tkignore"}
    assert "tools/env-3.12" not in Scanner(str(tmp_path), IgnoreRules()).scan().entries
    kept = mirrored(tmp_path, ("!tools/env-3.12/",))
    assert kept >= {"tools/env-3.12/lib/a.py"}


def test_a_root_that_is_a_virtual_environment_is_mirrored(tmp_path: Path) -> None:
    fill(tmp_path, {"pyvenv.cfg": "", "main.py": ""})
    assert mirrored(tmp_path) == {"pyvenv.cfg", "main.py"}


def test_a_directory_that_becomes_a_virtual_environment(tmp_path: Path) -> None:
    fill(tmp_path, {"e/a.py": "", "b.py": ""})
    scanner = Scanner(str(tmp_path), IgnoreRules())
    assert set(scanner.scan().entries) == {"e", "e/a.py", "b.py"}
    fill(tmp_path, {"e/pyvenv.cfg": ""})
    scan = scanner.scan()
    assert set(scan.entries) == {"b.py"}
    assert not interesting(str(tmp_path), scan, str(tmp_path / "e/lib/python/c.py"))
    assert interesting(str(tmp_path), scan, str(tmp_path / "e/pyvenv.cfg"))
    (tmp_path / "e/pyvenv.cfg").unlink()
    assert set(scanner.scan().entries) == {"e", "e/a.py", "b.py"}


def test_changed_tkignore_is_seen_by_the_next_scan(tmp_path: Path) -> None:
    fill(tmp_path, {"s/a.log": "", "s/.gitignore": "*.log\n"})
    scanner = Scanner(str(tmp_path), IgnoreRules())
    assert set(scanner.scan().entries) == {"s", "s/.gitignore"}
    fill(tmp_path, {"s/.tkignore": "!*.log\n"})
    assert set(scanner.scan().entries) == {"s", "s/.gitignore", "s/.tkignore", "s/a.log"}
    (tmp_path / "s/.tkignore").unlink()
    assert set(scanner.scan().entries) == {"s", "s/.gitignore"}


def test_events_of_ignore_files_count_though_they_are_ignored(tmp_path: Path) -> None:
    fill(tmp_path, {".gitignore": "*\n!*.py\n!*/\n", "s/a.py": "", "s/b": ""})
    scan = Scanner(str(tmp_path), IgnoreRules()).scan()
    assert ".gitignore" not in scan.entries
    assert interesting(str(tmp_path), scan, str(tmp_path / ".gitignore"))
    assert interesting(str(tmp_path), scan, str(tmp_path / "s/.tkignore"))
    assert not interesting(str(tmp_path), scan, str(tmp_path / "s/b"))


def test_an_ignore_file_that_is_a_symlink_is_not_read(tmp_path: Path) -> None:
    fill(tmp_path, {"rules": "*.log\n", "a.log": ""})
    (tmp_path / ".tkignore").symlink_to("rules")
    assert mirrored(tmp_path) == {"rules", "a.log", ".tkignore"}


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
