"""Rules for mirrored paths: .gitignore and .tkignore files, `[mirror] exclude`, tk's defaults.

Patterns are compiled by pathspec. It decides for a whole path, parents included; git decides for
one entry at a time, from the top down, and nested and negated rules only come out right that way.
So each pattern is matched with the entry itself, and the scan never descends into an ignored
directory.

Strongest first: `[mirror] exclude`; the .tkignore nearest to the entry, ..., the root's; the
defaults; the .gitignore nearest to the entry, ..., the root's. Within a list the last match
decides. The defaults beat .gitignore, and lines of .tkignore without a name (`!*/`), so that the
`*`, `!*/`, `!*.py` idiom doesn't include `.git`; `!.git/` does. Not read: files above the root,
core.excludesFile, .git/info/exclude.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from pathspec.patterns.gitignore.base import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from tunnelkit.errors import ConfigError

#: Where former content of replaced remote files is kept, inside the remote root.
REPLACED_DIR = ".tk-replaced"
#: Names that tk itself puts into a root, on the laptop or the cluster.
_OWN = frozenset({REPLACED_DIR, ".tk-owner"})
#: Temporary files, in any directory: cookies of the watcher, and files before their rename.
COOKIE_PREFIX, PART_PREFIX = ".tk-cookie-", ".tk-part-"
_OWN_PREFIXES = (COOKIE_PREFIX, PART_PREFIX)

GITIGNORE, TKIGNORE = ".gitignore", ".tkignore"
#: A directory that holds this file is a virtual environment (PEP 405), whatever its name.
VENV_MARK = "pyvenv.cfg"
#: No more of an ignore file is read.
_RULES_BYTES = 1 << 20
#: Sources of a `Rule` that is no line of a file.
EXCLUDE, DEFAULT, OWN = "[mirror] exclude", "default", "tk"

#: Names of directories (and of git's worktree file) that nobody wants mirrored.
DEFAULT_NAMES = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".jj",
        "__pycache__",
        ".venv",
        "venv",
        "node_modules",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".tox",
        ".nox",
        ".eggs",
        ".DS_Store",
    }
)
#: Names of files that nobody wants mirrored: byte code; and what editors write beside a file
#: before it is saved, with unsaved text in it: Emacs' locks and auto-saves, Vim's and Kate's files.
DEFAULT_FILES = ("*.pyc", ".#*", "#*#", "?*~", ".*.sw[a-p]", ".*.kate-swp")
_NAMED = re.compile(r"\w")


def _default_file(name: str) -> str | None:
    """Return the pattern of DEFAULT_FILES that a file's name matches."""
    # Of a hundred thousand names most need no more than this.
    if name[0] not in ".#" and name[-1] not in "c~":
        return None
    return next((one for one in DEFAULT_FILES if fnmatchcase(name, one)), None)


@dataclass(frozen=True, slots=True)
class Rule:
    """One line that decides.

    source: the ignore file (relative to the root), or EXCLUDE, DEFAULT or OWN.
    line: 1-based, 0 if there is none.
    ignores: False for a `!` line.
    """

    source: str
    line: int
    pattern: str
    ignores: bool

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        return f"{where}: {self.pattern}"

    @property
    def names(self) -> bool:
        """True if its last component contains a name: `!.git/` does, `!*/` and `!.*` don't."""
        return _NAMED.search(self.pattern.rstrip().rstrip("/").rpartition("/")[2]) is not None


class _Pattern:
    """One compiled line, matched with one entry and not with its parents."""

    __slots__ = ("_anywhere", "_below", "_search", "_trailing", "rule")

    def __init__(self, line: str, source: str, number: int) -> None:
        compiled = GitIgnoreSpecPattern(line)
        # None: a blank line or a comment, which decides nothing.
        self.rule: Rule | None = None
        if compiled.include is not None:
            self.rule = Rule(source, number, line, compiled.include)
        regex = compiled.regex
        self._search = regex.search if regex is not None else None
        source = regex.pattern if regex is not None else ""
        self._trailing = "(?P<ps_d>" in source
        self._anywhere = source == "(?P<ps_d>/)"
        self._below = line.rstrip().endswith("/**/")

    def matches(self, path: str, is_dir: bool) -> bool:
        if self._search is None:
            return False
        if self._anywhere:  # `*/`: every directory
            return is_dir
        if not self._trailing:  # `dir/**`: what is inside, not the directory
            return self._search(path) is not None
        asked = path + "/" if is_dir else path
        match = self._search(asked)
        if match is None:
            return False
        end = match.end("ps_d")
        if self._below:
            return is_dir and end < len(asked)
        # A slash before the end means that a parent matched, which was decided there.
        return end == -1 or end == len(asked)


@dataclass(frozen=True, slots=True)
class Rules:
    """One list of gitignore lines; paths are relative to the directory `base`."""

    base: str = ""
    _patterns: tuple[_Pattern, ...] = field(default=(), repr=False)

    @staticmethod
    def parse(
        lines: Iterable[str], *, base: str = "", source: str = EXCLUDE, strict: bool = False
    ) -> Rules:
        """Compile lines.

        A line that git can't read either is skipped, or raises ConfigError when `strict`.
        """
        patterns = []
        for number, line in enumerate(lines, 1):
            try:
                pattern = _Pattern(line, source, 0 if source == EXCLUDE else number)
            except (GitIgnorePatternError, ValueError) as error:
                if strict:
                    raise ConfigError(
                        f"[mirror] exclude holds {line!r}",
                        cause="not a gitignore pattern",
                        hint="write it as a line of .gitignore",
                    ) from error
                continue
            if pattern.rule is not None:
                patterns.append(pattern)
        patterns.reverse()
        return Rules(base, tuple(patterns))

    @staticmethod
    def of_file(text: bytes, *, base: str, name: str) -> Rules:
        """Compile the ignore file `name` in the directory `base` ("" or "a/b/")."""
        plain = text.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
        lines = [line.removesuffix("\r") for line in plain.split("\n")]
        return Rules.parse(lines, base=base, source=base + name)

    def decide(self, path: str, is_dir: bool) -> Rule | None:
        """Return the line that decides (it ignores, or is a `!` line), or None."""
        inner = path[len(self.base) :]
        for pattern in self._patterns:
            if pattern.matches(inner, is_dir):
                return pattern.rule
        return None

    def __bool__(self) -> bool:
        return bool(self._patterns)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules of one directory. `enter` returns those of a directory below."""

    exclude: Rules = field(default_factory=Rules)
    #: .gitignore files from the nearest to the root's.
    nested: tuple[Rules, ...] = ()
    #: .tkignore files, likewise.
    own: tuple[Rules, ...] = ()
    #: paths (relative to the root) that are never mirrored, regardless of the rules.
    never: frozenset[str] = _OWN
    #: set inside a virtual environment: nothing in it is mirrored.
    closed: Rule | None = None

    @staticmethod
    def from_exclude(lines: Iterable[str], *, never: Iterable[str] = ()) -> IgnoreRules:
        """Return the rules of the root without its ignore files. Raises ConfigError."""
        return IgnoreRules(Rules.parse(lines, strict=True), never=_OWN.union(never))

    def enter(self, base: str, gitignore: bytes = b"", tkignore: bytes = b"") -> IgnoreRules:
        """Return the rules inside directory `base` ("" or "a/b/") with its ignore files' bytes."""
        rules = self
        if gitignore:
            found = Rules.of_file(gitignore, base=base, name=GITIGNORE)
            rules = replace(rules, nested=(found, *self.nested)) if found else rules
        if tkignore:
            found = Rules.of_file(tkignore, base=base, name=TKIGNORE)
            rules = replace(rules, own=(found, *self.own)) if found else rules
        return rules

    def ignored(self, path: str, name: str, is_dir: bool) -> bool:
        """Return True if the entry `path`, of last component `name`, is ignored."""
        rule = self.rule_for(path, name, is_dir)
        return rule is not None and rule.ignores

    def rule_for(self, path: str, name: str, is_dir: bool) -> Rule | None:
        """Return the rule that decides for this entry; None: no rule matches, so it is mirrored."""
        if self.closed is not None:
            return self.closed
        if path in self.never:
            return Rule(OWN, 0, path, True)
        if name.startswith(_OWN_PREFIXES):
            return Rule(OWN, 0, name[: name.index("-", len(".tk-")) + 1] + "*", True)
        asked = self._asked(path, is_dir)
        if asked is not None and _beats_defaults(asked):
            return asked
        pattern = name if name in DEFAULT_NAMES else None if is_dir else _default_file(name)
        if pattern is not None:
            return Rule(DEFAULT, 0, pattern, True)
        if asked is not None:
            return asked
        for rules in self.nested:
            rule = rules.decide(path, is_dir)
            if rule is not None:
                return rule
        return None

    def venv(self, path: str) -> Rule | None:
        """Return the rule that leaves out a directory that is a virtual environment.

        None if `exclude` or a .tkignore includes it.
        """
        asked = self._asked(path, True)
        if asked is not None and not asked.ignores and _beats_defaults(asked):
            return None
        return Rule(DEFAULT, 0, f"a virtual environment ({VENV_MARK})", True)

    def _asked(self, path: str, is_dir: bool) -> Rule | None:
        """Return the rule of `exclude`, or else of the .tkignore files."""
        rule = self.exclude.decide(path, is_dir) if self.exclude else None
        for rules in self.own if rule is None else ():
            rule = rules.decide(path, is_dir)
            if rule is not None:
                break
        return rule


def _beats_defaults(rule: Rule) -> bool:
    return rule.ignores or rule.source == EXCLUDE or rule.names


def inside(state_dir: Path, root: Path) -> list[str]:
    """Return the state directory as a path to leave out, if it lies in the mirrored tree."""
    state = state_dir.resolve()
    return [state.relative_to(root).as_posix()] if state.is_relative_to(root) else []


def read_rules(path: str) -> bytes:
    """Return an ignore file's bytes; none if it is no plain file (git follows no link either)."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return b""
        with open(path, "rb") as stream:
            return stream.read(_RULES_BYTES)
    except OSError:
        return b""
