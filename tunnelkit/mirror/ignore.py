"""Which paths are mirrored: .gitignore files, `[mirror] exclude`, and tk's defaults.

Patterns are compiled by pathspec. It answers for a whole path, parents included;
git answers for one entry at a time, from the top down, and nested and negated rules
only come out right that way. So each pattern is asked about the entry itself, and
the scan never descends into an ignored directory.

Strongest first: `[mirror] exclude`, the defaults, the .gitignore nearest to the
entry, ..., the root's .gitignore. Within a list the last match decides. The defaults
beat .gitignore so that the `*`, `!*/`, `!*.py` idiom doesn't bring `.git` along.
Not read: .gitignore files above the root, core.excludesFile, .git/info/exclude.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pathspec.patterns.gitignore.base import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from tunnelkit.errors import ConfigError

#: Where former content of replaced remote files is kept, inside the remote root.
REPLACED_DIR = ".tk-replaced"

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


class _Pattern:
    """One compiled line that is asked about one entry, not about its parents."""

    __slots__ = ("_anywhere", "_below", "_search", "_trailing", "ignores")

    def __init__(self, line: str) -> None:
        compiled = GitIgnoreSpecPattern(line)
        # None: a blank line or a comment, which decides nothing.
        self.ignores: bool | None = compiled.include
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
    def parse(lines: Iterable[str], *, base: str = "", strict: bool = False) -> Rules:
        """Compile lines. A line that git can't read either is skipped, or raises
        ConfigError when `strict`."""
        patterns = []
        for line in lines:
            try:
                pattern = _Pattern(line)
            except (GitIgnorePatternError, ValueError) as error:
                if strict:
                    raise ConfigError(
                        f"[mirror] exclude holds {line!r}",
                        cause="not a gitignore pattern",
                        hint="write it as a line of .gitignore",
                    ) from error
                continue
            if pattern.ignores is not None:
                patterns.append(pattern)
        patterns.reverse()
        return Rules(base, tuple(patterns))

    def decide(self, path: str, is_dir: bool) -> bool | None:
        """True: ignored, False: taken back by a `!` line, None: not mentioned."""
        inner = path[len(self.base) :]
        for pattern in self._patterns:
            if pattern.matches(inner, is_dir):
                return pattern.ignores
        return None

    def __bool__(self) -> bool:
        return bool(self._patterns)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules that hold in one directory. `enter` gives those of a directory below."""

    exclude: Rules = field(default_factory=Rules)
    #: .gitignore files from the nearest to the root's.
    nested: tuple[Rules, ...] = ()
    #: paths (relative to the root) that are never mirrored, whatever the rules say.
    never: frozenset[str] = frozenset({REPLACED_DIR})

    @staticmethod
    def from_exclude(lines: Iterable[str], *, never: Iterable[str] = ()) -> IgnoreRules:
        """The rules of the root before its .gitignore is read. Raises ConfigError."""
        return IgnoreRules(Rules.parse(lines, strict=True), never=frozenset({REPLACED_DIR, *never}))

    def enter(self, base: str, gitignore: bytes | None) -> IgnoreRules:
        """The rules inside directory `base` ("" or "a/b/"), given its .gitignore's bytes."""
        if gitignore is None:
            return self
        text = gitignore.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        rules = Rules.parse(lines, base=base)
        return IgnoreRules(self.exclude, (rules, *self.nested), self.never) if rules else self

    def ignored(self, path: str, name: str, is_dir: bool) -> bool:
        """Whether the entry `path`, of last component `name`, in this directory is ignored."""
        if path in self.never:
            return True
        verdict = self.exclude.decide(path, is_dir) if self.exclude else None
        if verdict is not None:
            return verdict
        if name in DEFAULT_NAMES:
            return True
        for rules in self.nested:
            verdict = rules.decide(path, is_dir)
            if verdict is not None:
                return verdict
        return False
