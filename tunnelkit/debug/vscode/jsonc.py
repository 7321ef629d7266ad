"""JSON with comments, as VS Code writes it: a parser that knows where everything stands.

`parse` gives a tree of nodes with offsets into the text, so that an edit (see
`jsonc_edit`) touches only the characters it must. Accepted beyond JSON: `//` and
`/* */` comments and trailing commas, like VS Code's own files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

#: Deeper documents are refused rather than risking Python's recursion limit.
MAX_DEPTH = 200

_TRIVIA = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\r\n]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+-])")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE_END = re.compile(r"\r\n|\r|\n")
_LITERALS = {"true": True, "false": False, "null": None}


class JsoncError(ValueError):
    """Malformed text: `reason`, with 1-based `line` and `column` (in characters)."""

    def __init__(self, reason: str, text: str, offset: int) -> None:
        ends = [found.end() for found in _LINE_END.finditer(text, 0, offset)]
        self.reason = reason
        self.line = len(ends) + 1
        self.column = offset - (ends[-1] if ends else 0) + 1
        super().__init__(f"{self.line}:{self.column}: {reason}")


@dataclass(frozen=True, slots=True)
class Node:
    """One value: text[start:end]."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scalar(Node):
    """A string, number, true, false or null."""

    value: object


@dataclass(frozen=True, slots=True)
class Member:
    """One `"key": value` of an object."""

    key: str
    start: int
    value: Node


@dataclass(frozen=True, slots=True)
class Object(Node):
    """`trailing_comma`: the end of the comma after the last member, None if there is none."""

    members: tuple[Member, ...]
    trailing_comma: int | None

    def get(self, key: str) -> Node | None:
        """The value of `key`; the last one where it stands twice, as JSON readers do."""
        found = [member.value for member in self.members if member.key == key]
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Array(Node):
    """`trailing_comma`: the end of the comma after the last item, None if there is none."""

    items: tuple[Node, ...]
    trailing_comma: int | None


def parse(text: str) -> Node | None:
    """The value in `text`; None if it holds nothing but whitespace and comments.

    Raises JsoncError. A byte order mark at the start is skipped.
    """
    parser = _Parser(text)
    offset = parser.skip(1 if text.startswith("\ufeff") else 0)
    if offset == len(text):
        return None
    node = parser.value(offset, 0)
    rest = parser.skip(node.end)
    if rest != len(text):
        raise JsoncError("something follows the end of the document", text, rest)
    return node


def after_trivia(text: str, offset: int) -> int:
    """The first character at or after `offset` that is neither white space nor comment."""
    found = _TRIVIA.match(text, offset)
    return offset if found is None else found.end()


def to_python(node: Node) -> object:
    """The plain value of a node: dict, list, str, int, float, bool or None."""
    if isinstance(node, Object):
        return {member.key: to_python(member.value) for member in node.members}
    if isinstance(node, Array):
        return [to_python(item) for item in node.items]
    assert isinstance(node, Scalar)
    return node.value


def same(node: Node, value: object) -> bool:
    """True if a node holds exactly `value`; unlike Python's `==`, 1 is neither 1.0 nor true."""
    return _canonical(to_python(node)) == _canonical(value)


def _canonical(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _canonical(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(one) for one in value]
    return type(value), value


class _Parser:
    """Recursive descent over one text; every method takes an offset and returns nodes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def skip(self, offset: int) -> int:
        """The offset of the next token; raises on a comment that never ends."""
        found = _TRIVIA.match(self._text, offset)
        assert found is not None
        if self._text.startswith("/*", found.end()):
            raise JsoncError("this comment is never closed", self._text, found.end())
        return found.end()

    def value(self, offset: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise JsoncError("nested too deeply", self._text, offset)
        opening = self._text[offset : offset + 1]
        if opening == "{":
            return self._object(offset, depth)
        if opening == "[":
            return self._array(offset, depth)
        return self._scalar(offset)

    def _object(self, start: int, depth: int) -> Object:
        members: list[Member] = []
        trailing_comma = None
        offset = self.skip(start + 1)
        while not self._text.startswith("}", offset):
            if members and trailing_comma is None:
                raise self._unexpected(offset, "',' or '}'")
            key_start = offset
            key, offset = self._key(offset)
            value = self.value(self.skip(offset), depth + 1)
            members.append(Member(key, key_start, value))
            offset, trailing_comma = self._comma(value.end)
        return Object(start, offset + 1, tuple(members), trailing_comma)

    def _key(self, offset: int) -> tuple[str, int]:
        """A key and the offset after its colon."""
        if not self._text.startswith('"', offset):
            raise self._unexpected(offset, "a key in double quotes")
        key = self._scalar(offset)
        colon = self.skip(key.end)
        if not self._text.startswith(":", colon):
            raise self._unexpected(colon, "':'")
        return str(key.value), colon + 1

    def _array(self, start: int, depth: int) -> Array:
        items: list[Node] = []
        trailing_comma = None
        offset = self.skip(start + 1)
        while not self._text.startswith("]", offset):
            if items and trailing_comma is None:
                raise self._unexpected(offset, "',' or ']'")
            items.append(self.value(offset, depth + 1))
            offset, trailing_comma = self._comma(items[-1].end)
        return Array(start, offset + 1, tuple(items), trailing_comma)

    def _comma(self, offset: int) -> tuple[int, int | None]:
        """The next token after an element and its comma, and the comma's end if there is one."""
        offset = self.skip(offset)
        if not self._text.startswith(",", offset):
            return offset, None
        return self.skip(offset + 1), offset + 1

    def _scalar(self, offset: int) -> Scalar:
        text = self._text
        if text.startswith('"', offset):
            string = _STRING.match(text, offset)
            if string is None:
                raise JsoncError("this string is not closed or not well formed", text, offset)
            return Scalar(offset, string.end(), json.loads(string.group(), strict=False))
        number = _NUMBER.match(text, offset)
        if number is not None:
            return Scalar(offset, number.end(), _number(number.group()))
        word = _WORD.match(text, offset)
        if word is not None and word.group() in _LITERALS:
            return Scalar(offset, word.end(), _LITERALS[word.group()])
        raise self._unexpected(offset, "a value")

    def _unexpected(self, offset: int, expected: str) -> JsoncError:
        if offset >= len(self._text):
            return JsoncError(f"expected {expected}, but the file ends", self._text, offset)
        return JsoncError(f"expected {expected}, not {self._text[offset]!r}", self._text, offset)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:  # a fraction, or more digits than int() takes
        return float(text)
