"""Slurm's expressions of node features: `a&b`, `a|b`, `!a`, `(a|b)&c`, `[a|b]`, `[a*2&b*1]`.

Source: man sbatch, --constraint. Nodes of `[a|b]` must all be of one kind; of `[a*2&b*1]` two
nodes have a, one has b, and any others may have neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Holds = Callable[[frozenset[str]], bool]
_TOKEN = re.compile(r"\s*([A-Za-z0-9_.:=/+-]+|[&|!()\[\]{}*,])")
#: Longer ones are no person's, and would only cost time.
_MOST_CHARACTERS = 2000
_MOST_DEPTH = 40


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to meet an expression. holds: for each node of the job. counts: so many nodes of
    it must have these, too."""

    holds: Holds
    counts: tuple[tuple[Holds, int], ...] = ()


def kinds(expression: str) -> tuple[Kind, ...] | None:
    """Return the ways to meet an expression; None if it can't be read."""
    if not expression:
        return (Kind(_any_node),)
    tokens = _tokens(expression)
    if tokens is None:
        return None
    try:
        parser = _Parser(tokens)
        found = parser.either(0)
        return found if parser.is_done else None
    except _Malformed:
        return None


def _any_node(features: frozenset[str]) -> bool:
    return True


class _Malformed(Exception):
    pass


def _tokens(text: str) -> list[str] | None:
    if len(text) > _MOST_CHARACTERS:
        return None
    found, at = [], 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            return None
        found.append(match[1])
        at = match.end()
    return found


class _Parser:
    """One pass over the tokens; `&` binds tighter than `|`."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._at == len(self._tokens)

    def _next(self) -> str:
        return "" if self.is_done else self._tokens[self._at]

    def _take(self, token: str) -> bool:
        if self._next() != token:
            return False
        self._at += 1
        return True

    def either(self, depth: int, *, alternatives: bool = False) -> tuple[Kind, ...]:
        """alternatives: each is a kind of its own, as within `[ ]`."""
        found = [self._both(depth)]
        while self._take("|"):
            found.append(self._both(depth))
        if len(found) == 1:
            return found[0]
        every = tuple(kind for group in found for kind in group)
        if alternatives or any(kind.counts for kind in every) or len(every) > len(found):
            return every
        tests = tuple(kind.holds for kind in every)
        return (Kind(lambda features: any(test(features) for test in tests)),)

    def _both(self, depth: int) -> tuple[Kind, ...]:
        found = self._one(depth)
        while self._take("&") or self._take(","):
            right = self._one(depth)
            if len(found) * len(right) > 64:
                raise _Malformed
            found = tuple(_and(a, b) for a in found for b in right)
        return found

    def _one(self, depth: int) -> tuple[Kind, ...]:
        if depth > _MOST_DEPTH:
            raise _Malformed
        if self._take("!"):
            [kind] = self._plain(self._one(depth + 1))
            return (Kind(lambda features: not kind.holds(features)),)
        for begin, end in (("(", ")"), ("[", "]"), ("{", "}")):
            if self._take(begin):
                inside = self.either(depth + 1, alternatives=begin != "(")
                if not self._take(end):
                    raise _Malformed
                return self._counted(inside)
        name = self._next()
        if not re.match(r"[A-Za-z0-9_]", name):
            raise _Malformed
        self._at += 1
        return self._counted((Kind(lambda features: name in features),))

    @staticmethod
    def _plain(found: tuple[Kind, ...]) -> tuple[Kind, ...]:
        if len(found) != 1 or found[0].counts:
            raise _Malformed
        return found

    def _counted(self, found: tuple[Kind, ...]) -> tuple[Kind, ...]:
        """Read `*N`: so many of the job's nodes, not each."""
        if not self._take("*"):
            return found
        [kind] = self._plain(found)
        number = self._next()
        if not re.fullmatch(r"[0-9]{1,7}", number):
            raise _Malformed
        self._at += 1
        return (Kind(_any_node, ((kind.holds, int(number)),)),)


def _and(a: Kind, b: Kind) -> Kind:
    left, right = a.holds, b.holds
    return Kind(lambda features: left(features) and right(features), a.counts + b.counts)
