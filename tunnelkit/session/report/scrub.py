"""Removal of names and secrets from texts; a name gets the same pseudonym everywhere.

Known hosts, users, homes and values of secret variables are replaced wherever they stand.
Other secrets and names are found by pattern. No I/O.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tunnelkit.session.report import patterns

#: Names of at least this length are also replaced inside longer words.
_ANYWHERE = 5
_SHORTEST_SECRET = 4
#: Longer lines are left out: they are hardly readable, and slow to match.
_LONGEST_LINE = 2_000


class Scrubber:
    """The scrubber of one whole report. `removed` counts the removed items, by kind."""

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
        """Return the text without names and secrets. Very long lines are left out completely."""
        text = "\n".join(map(_bounded, text.split("\n")))
        if self._secrets is not None:
            text, count = self._secrets.subn("[secret]", text)
            self.removed["secret"] += count
        for pattern, instead in patterns.SECRETS:
            text, count = pattern.subn(instead, text)
            self.removed["secret"] += count
        low = text.lower()
        # A cluster has thousands of nodes; a text contains few of their names.
        present = [name for name in self._kinds if name in low]
        if present:
            text = _names_pattern(present).sub(self._known, text)
        text = patterns.OC_CONTEXT.sub(
            lambda found: (
                f"{found[1]}{self._name('host', found[2])}{found[3]}{self._name('user', found[4])}"
            ),
            text,
        )
        text = patterns.HOME_OF.sub(lambda found: found[1] + self._name("user", found[2]), text)
        text = patterns.USER_AT_HOST.sub(
            lambda found: f"{self._name('user', found[1])}@{self._name('host', found[2])}", text
        )
        for pattern in (patterns.IPV4, patterns.IPV6, patterns.FULL_NAME):
            text = pattern.sub(lambda found: self._name("host", found[0]), text)
        return text

    def json(self, value: object) -> object:
        """Scrub a JSON value: its strings, and completely the strings under a secret key.

        Keys are scrubbed only if they are a path or name of the user's, not tk's own words.
        """
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
        """Return the pseudonym of a name; common names and pseudonyms are returned unchanged."""
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
            # A pseudonym must not equal a real name.
            if made not in self._kinds and made.rpartition("/")[2] not in self._kinds:
                return made

    def _is_pseudonym(self, key: str) -> bool:
        if key in self._kinds:
            return False
        return key in self._pseudonyms.values() or f"/home/{key}" in self._pseudonyms.values()

    @property
    def pseudonyms(self) -> Counter[str]:
        """The number of different names that were replaced, by kind."""
        return Counter(kind for kind, _ in self._pseudonyms)


def _is_own(key: str) -> bool:
    """True if a key is a path or a name of the user's rather than one of tk's own words."""
    return not re.fullmatch(r"[a-z_-]+(\.[a-z_]+)*", key)


def _any_of(words: Iterable[str]) -> re.Pattern[str] | None:
    found = sorted({re.escape(word) for word in words}, key=len, reverse=True)
    return re.compile("|".join(found)) if found else None


def _bounded(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"[a line of {len(line)} characters]"


def _names_pattern(kinds: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for all names; short names and words match only where they stand alone."""

    def one(name: str) -> str:
        text = re.escape(name)
        if len(name) >= _ANYWHERE and name not in patterns.WORDS:
            return text
        return rf"(?<![a-z0-9]){text}(?![a-z0-9])"

    found = [one(name) for name in sorted(kinds, key=len, reverse=True) if name]
    return re.compile("|".join(found), re.IGNORECASE)
