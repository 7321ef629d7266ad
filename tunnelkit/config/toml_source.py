"""TOML files with the line of every key, and the escaper for writing a value.

tomllib reads; a small scan of the same text tells on which line a key stands,
so that every message and `tk config show` can point there.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.errors import ConfigError

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|\n|[\[\]{}=]",
    re.DOTALL,
)
_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class TomlDocument:
    """One TOML file: its values as tomllib gives them, and 1-based lines by dotted key."""

    path: Path
    values: Mapping[str, object]
    lines: Mapping[str, int]

    def place(self, key: str) -> str:
        """`FILE:LINE` of a key or section, or the file alone."""
        line = self.lines.get(key)
        return str(self.path) if line is None else f"{self.path}:{line}"


def read(path: Path) -> TomlDocument:
    """Read one file; raises ConfigError naming file, line and column."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read", cause=error.strerror, hint="check the file and its permissions"
        ) from None
    return parse(path, data)


def parse(path: Path, data: bytes) -> TomlDocument:
    """The same for text in memory that is, or will be, the file at `path`."""
    text = _decode(path, data)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, line, column = _position(str(error), text)
        raise ConfigError(
            f"{path}:{line}:{column}: not valid TOML", cause=reason, hint="correct that line"
        ) from None
    except RecursionError:
        raise ConfigError(
            f"{path}: values are nested too deeply",
            hint="write them flat: tk's settings are two levels deep",
        ) from None
    return TomlDocument(path, values, _lines(text))


def _decode(path: Path, data: bytes) -> str:
    try:
        # Some Windows editors put a BOM first, which TOML itself doesn't allow.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        raise ConfigError(
            f"{path}:{line}:{column}: not UTF-8 text", hint="save the file as UTF-8"
        ) from None
    return text.replace("\r\n", "\n")


def _position(message: str, text: str) -> tuple[str, int, int]:
    """Split tomllib's message into reason, line and column."""
    found = _POSITION.search(message)
    if found is None:
        return message, 1, 1
    reason = message[: found.start()]
    if found[1] is None:
        return reason, text.count("\n") + 1, len(text) - text.rfind("\n")
    return reason, int(found[1]), int(found[2])


def _lines(text: str) -> dict[str, int]:
    """The first line of every key and of every table that it implies."""
    lines: dict[str, int] = {}
    for dotted, line in _keys_with_lines(text):
        parts = dotted.split(".")
        for length in range(1, len(parts) + 1):
            lines.setdefault(".".join(parts[:length]), line)
    return lines


def _keys_with_lines(text: str) -> Iterator[tuple[str, int]]:
    """Every section header and key of a valid document, dotted, with its line."""
    section = ""
    depth = 0
    start: int | None = 0  # where the statement began; None once its key is known
    line = 1
    counted = 0
    for token in _TOKEN.finditer(text):
        line += text.count("\n", counted, token.start())
        counted = token.start()
        symbol = token.group()
        if symbol == "\n" and depth == 0:
            start = token.end()
        elif symbol == "=" and start is not None:
            yield _dotted(section, text[start : token.start()]), line
            start = None
        elif symbol in ("[", "{"):
            if start is not None:
                header = text[start:].split("\n", 1)[0]
                section = _dotted("", header.split("#", 1)[0].strip().strip("[]"))
                start = None
                yield section, line
            depth += 1
        elif symbol in ("]", "}"):
            depth -= 1


def _dotted(section: str, name: str) -> str:
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    return ".".join([section, *parts] if section else parts)


def quote(text: str) -> str:
    """`text` as a TOML basic string. Raises ValueError for what UTF-8 can't hold."""
    text.encode()
    # JSON's escapes are all TOML's too; DEL is the one character that only TOML escapes.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def dump(value: object) -> str:
    """A value of a key (text, number, true/false, list, table) as TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {dump(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(dump(one) for one in value) + "]"
    return quote(value) if isinstance(value, str) else str(value)
