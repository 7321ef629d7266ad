"""Takes names and secrets out of texts; the same name gets the same pseudonym everywhere.

What is known (hosts, users, homes, values of secret variables) is replaced wherever it
stands; what only looks like a secret or a name is replaced by pattern. No I/O.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tunnelkit.session.report import patterns

#: Names of this length and more are replaced inside of longer words, too.
_ANYWHERE = 5
_SHORTEST_SECRET = 4
#: Nobody reads longer ones, and patterns take long over them.
_LONGEST_LINE = 2_000


class Scrubber:
    """One for a whole report. `removed` counts what was taken out, by kind."""

    def __init__(
        self,
        *,
        hosts: Iterable[str] = (),
        users: Iterable[str] = (),
        homes: Iterable[str] = (),
        secrets: Iterable[str] = (),
    ) -> None:
        self.removed: Counter[str] = Counter()
        self._pseudonyms: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()
        self._kinds: dict[str, str] = {}
        for home in homes:
            if len(home.rstrip("/")) > 1 and home.rstrip("/") != "/root":
                self._kinds.setdefault(home.rstrip("/").lower(), "home")
        for kind, names in (("user", users), ("host", hosts)):
            for name in names:
                self._know(kind, name)
        self._secrets = _any_of(one for one in secrets if len(one) >= _SHORTEST_SECRET)

    def _know(self, kind: str, name: str) -> None:
        name = name.strip().strip("[]").lower()
        if name in patterns.COMMON or name.startswith("127.") or name == "::1":
            return
        self._kinds.setdefault(name, kind)
        if kind == "host" and not name.replace(".", "").isdigit():
            # node4.cluster.example.org is also called node4.
            short = name.partition(".")[0]
            if short != name:
                self._kinds.setdefault(short, kind)

    def text(self, text: str) -> str:
        """The text without names and secrets. Very long lines are left out whole."""
        text = "\n".join(map(_bounded, text.split("\n")))
        if self._secrets is not None:
            text, count = self._secrets.subn("[secret]", text)
            self.removed["secret"] += count
        for pattern, instead in patterns.SECRETS:
            text, count = pattern.subn(instead, text)
            self.removed["secret"] += count
        low = text.lower()
        # A cluster has thousands of nodes, a text names few of them.
        present = [name for name in self._kinds if name in low]
        if present:
            text = _names_pattern(present).sub(self._known, text)
        text = patterns.HOME_OF.sub(lambda found: found[1] + self._name("user", found[2]), text)
        text = patterns.USER_AT_HOST.sub(
            lambda found: f"{self._name('user', found[1])}@{self._name('host', found[2])}", text
        )
        for pattern in (patterns.IPV4, patterns.IPV6, patterns.FULL_NAME):
            text = pattern.sub(lambda found: self._name("host", found[0]), text)
        return text

    def json(self, value: Any) -> Any:
        """The same for JSON: its texts, and whole values whose key says that they are secret.
        Keys are tk's own words, but where they stand for something of the person's."""
        if isinstance(value, dict):
            return {
                self.text(key) if _is_own(key) else key: "[secret]"
                if patterns.SECRET_KEY.search(key) and isinstance(item, str)
                else self.json(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.json(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _known(self, found: re.Match[str]) -> str:
        name = found[0].lower()
        return self._name(self._kinds[name], name)

    def _name(self, kind: str, name: str) -> str:
        """The pseudonym of a name; one that is nobody's own stays."""
        key = name.lower()
        if self._is_pseudonym(key) or key in patterns.COMMON or key in patterns.EXAMPLE_HOSTS:
            return name
        if kind == "host" and (key.startswith("127.") or key in ("0.0.0.0", "::1")):  # noqa: S104
            return name
        self.removed[kind] += 1
        known = (self._kinds.get(key, kind), key)
        if known not in self._pseudonyms:
            self._pseudonyms[known] = self._next(known[0])
        return self._pseudonyms[known]

    def _next(self, kind: str) -> str:
        while True:
            self._numbers[kind] += 1
            made = f"{'/home/home' if kind == 'home' else kind}{self._numbers[kind]}"
            # Nobody's real name may pass for a pseudonym.
            if made not in self._kinds and made.rpartition("/")[2] not in self._kinds:
                return made

    def _is_pseudonym(self, key: str) -> bool:
        if key in self._kinds:
            return False
        return key in self._pseudonyms.values() or f"/home/{key}" in self._pseudonyms.values()

    @property
    def pseudonyms(self) -> Counter[str]:
        """How many different names were replaced, by kind."""
        return Counter(kind for kind, _ in self._pseudonyms)


def _is_own(key: str) -> bool:
    """Whether a key is a path or a name of the person's rather than a word of tk's."""
    return not re.fullmatch(r"[a-z_-]+(\.[a-z_]+)*", key)


def _any_of(words: Iterable[str]) -> re.Pattern[str] | None:
    found = sorted({re.escape(word) for word in words}, key=len, reverse=True)
    return re.compile("|".join(found)) if found else None


def _bounded(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"[a line of {len(line)} characters]"


def _names_pattern(kinds: Iterable[str]) -> re.Pattern[str]:
    """Any of the names; short ones, and those that are words, only where they stand alone."""

    def one(name: str) -> str:
        text = re.escape(name)
        if len(name) >= _ANYWHERE and name not in patterns.WORDS:
            return text
        return rf"(?<![a-z0-9]){text}(?![a-z0-9])"

    found = [one(name) for name in sorted(kinds, key=len, reverse=True) if name]
    return re.compile("|".join(found), re.IGNORECASE)
