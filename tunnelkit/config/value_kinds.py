"""The kinds of value that a key may hold: how each is read, checked and written back.

A value enters as what TOML gave (`parse`) or as text from the environment or a
flag (`from_text`, then `parse`). Nothing that passes can carry a newline or
another control character, so none can forge a line of a job script; the one
exception, the prologue, is checked for scheduler directives instead.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tunnelkit.errors import UsageError
from tunnelkit.model import Hop, LocalForward, check_port

T = TypeVar("T")


class BadValue(Exception):
    """A value of the wrong type or form. The loader adds file, line and key."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def _same(value: T) -> T:
    return value


@dataclass(frozen=True, slots=True)
class ValueKind:
    """One kind of value. `parse` and `from_text` raise BadValue; `dump` gives back
    what `parse` accepts, in types that JSON has."""

    parse: Callable[[object], object]
    from_text: Callable[[str], object] = _same
    dump: Callable[[Any], object] = _same


def single_line(raw: object) -> str:
    """Return `raw` if it is non-empty text without control characters."""
    if not isinstance(raw, str):
        raise BadValue(f"expected text, got {type_name(raw)}", "put it in quotes")
    if not raw.strip():
        raise BadValue("it is empty", "give a value, or leave the line out")
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in raw):
        raise BadValue("it holds a newline or another control character", "write it on one line")
    return raw


def type_name(raw: object) -> str:
    """The TOML name of a value's type, for messages."""
    names = {bool: "true/false", int: "a number", float: "a number", str: "text"}
    names |= {list: "a list", tuple: "a list", dict: "a section"}
    return names.get(type(raw), "an unquoted date or time")


def _argument(raw: object) -> str:
    """Text that becomes one word of an argv: never an option by accident."""
    text = single_line(raw)
    if text.startswith("-"):
        raise BadValue(f"{text!r} starts with '-' and would be read as an option")
    return text


def _scheduler_word(raw: object) -> str:
    text = _argument(raw)
    if any(c.isspace() for c in text):
        raise BadValue(f"{text!r} holds a space")
    return text


def _mem(raw: object) -> str:
    text = single_line(raw)
    if not re.fullmatch(r"[0-9]{1,12}[KMGTkmgt]?", text):
        raise BadValue(f"{text!r} is not an amount of memory", 'write "16G" or "800M"')
    return text


def _integer(at_least: int) -> ValueKind:
    def parse(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise BadValue(f"expected a whole number, got {type_name(raw)}")
        if not at_least <= raw <= 1_000_000:
            raise BadValue(f"{raw} is out of range", f"the least is {at_least}")
        return raw

    return ValueKind(parse, _text_to_int)


def _text_to_int(text: str) -> object:
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text):
        raise BadValue(f"{text!r} is not a whole number")
    return int(text)


def _port(raw: object) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise BadValue(f"expected a port number, got {type_name(raw)}")
    return _model(lambda: check_port(raw))


def _boolean(raw: object) -> bool:
    if not isinstance(raw, bool):
        raise BadValue(f"expected true or false, got {type_name(raw)}", "write it without quotes")
    return raw


def _text_to_boolean(text: str) -> object:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise BadValue(f"{text!r} is neither true nor false")


def _model(make: Callable[[], T]) -> T:
    """Run one of the model's own checks; its UsageError becomes a BadValue."""
    try:
        return make()
    except UsageError as error:
        raise BadValue(error.message, error.hint) from None


def choice(*allowed: str) -> ValueKind:
    """One of a few words."""

    def parse(raw: object) -> str:
        text = single_line(raw)
        if text not in allowed:
            raise BadValue(f"{text!r} is not known", "use one of: " + ", ".join(allowed))
        return text

    return ValueKind(parse)


def list_of(item: Callable[[object], object], dump: Callable[[Any], object] = _same) -> ValueKind:
    """A list. As text it is comma-separated, or a TOML array where items hold commas."""

    def parse(raw: object) -> tuple[object, ...]:
        if not isinstance(raw, list | tuple):
            raise BadValue(f"expected a list, got {type_name(raw)}", 'write ["..."]')
        return tuple(item(one) for one in raw)

    return ValueKind(parse, _text_to_list, lambda value: [dump(one) for one in value])


def _text_to_list(text: str) -> object:
    if text.lstrip().startswith("["):
        try:
            return tomllib.loads(f"v = {text}")["v"]
        except tomllib.TOMLDecodeError as error:
            raise BadValue(f"{text!r} is not a list: {error}") from None
    return [part.strip() for part in text.split(",") if part.strip()]


_DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,7})m)?(?:(\d{1,8})s)?", re.I)
_CLOCK = re.compile(r"(?:(\d{1,4})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?")


def parse_time_s(raw: object) -> int:
    """A time limit in seconds. Slurm's forms (minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S;
    man sbatch, --time), and 90m, 2h, 1d12h. Raises BadValue."""
    hint = 'write "2:00:00", "90m" or "1-00:00:00"'
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise BadValue(f"expected a time, got {type_name(raw)}", hint)
    text = str(raw).strip()
    units = _DURATION.fullmatch(text)
    if units and text:
        days, hours, minutes, seconds = (int(part or 0) for part in units.groups())
    else:
        days, hours, minutes, seconds = _clock(text, hint)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total <= 0:
        raise BadValue(f"{text!r} is no time at all", hint)
    return total


def _clock(text: str, hint: str) -> tuple[int, int, int, int]:
    found = _CLOCK.fullmatch(text)
    if not found:
        raise BadValue(f"{text!r} is not a time", hint)
    day_text, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    if any(part > 59 for part in parts[1:]) or (day_text and parts[0] > 23):
        raise BadValue(f"{text!r} is not a time", hint)
    if day_text:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return int(day_text), hours, minutes, seconds
    if len(parts) == 3:
        return 0, parts[0], parts[1], parts[2]
    minutes, seconds = (*parts, 0)[:2]
    return 0, 0, minutes, seconds


def format_time(seconds: int) -> str:
    """Seconds as `H:MM:SS`, or `D-HH:MM:SS` from a day on; `parse_time_s` reads it back."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}"


def _remote_dir(raw: object) -> str:
    text = single_line(raw).rstrip("/") or "/"
    hint = "give a directory of its own, such as ~/tk/myproject"
    if not text.startswith(("/", "~/")):
        if text == "~":
            raise BadValue("it is your whole home directory there", hint)
        raise BadValue(f"{text!r} is neither absolute nor under '~/'", hint)
    if text == "/":
        raise BadValue("it is the root of the file system there", hint)
    if ".." in text.split("/"):
        raise BadValue(f"{text!r} holds '..'", hint)
    if not [part for part in text.removeprefix("~").split("/") if part not in ("", ".")]:
        raise BadValue(f"{text!r} names no directory of its own", hint)
    return text


_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")


def _cluster_dir(raw: object) -> str:
    text = single_line(raw).rstrip("/")
    hint = "give a directory of its own, such as $SCRATCH/.tunnelkit"
    first, _, below = text.partition("/")
    if first.startswith("$") and not _VARIABLE.fullmatch(first):
        raise BadValue(f"{first!r} is no variable's name", hint)
    if first not in ("", "~") and not first.startswith("$"):
        raise BadValue(f"{text!r} begins with none of '/', '~/' and a $VARIABLE", hint)
    parts = [part for part in below.split("/") if part not in ("", ".")]
    if not parts:
        raise BadValue(f"{text!r} names no directory of its own", hint)
    if ".." in parts:
        raise BadValue(f"{text!r} holds '..'", hint)
    return f"{first}/{'/'.join(parts)}"


def _prologue(raw: object) -> str:
    if not isinstance(raw, str):
        raise BadValue(f"expected text, got {type_name(raw)}", "put the lines in quotes")
    text = raw.replace("\r\n", "\n")
    if any((ord(c) < 0x20 and c not in "\n\t") or ord(c) == 0x7F for c in text):
        raise BadValue("it holds a control character")
    for line in text.split("\n"):
        if re.match(r"\s*#\s*(SBATCH|PBS)\b", line, re.I):
            raise BadValue(
                f"{line.strip()!r} would be read as a request to the scheduler",
                "put it under [allocation], for instance in `extra`",
            )
    return text


def _path(raw: object) -> Path:
    return Path(single_line(raw))


def _forward(raw: object) -> LocalForward:
    if isinstance(raw, int) and not isinstance(raw, bool):
        raw = str(raw)
    text = single_line(raw)
    return _model(lambda: LocalForward.parse(text))


def _shared_forward(raw: object) -> LocalForward:
    return replace(_forward(raw), shared=True)


def _hop(raw: object) -> Hop:
    text = single_line(raw)
    return _model(lambda: Hop(text))


ARGUMENT = ValueKind(_argument)
SCHEDULER_WORD = ValueKind(_scheduler_word)
MEM = ValueKind(_mem)
COUNT = _integer(1)
COUNT_OR_ZERO = _integer(0)
PORT = ValueKind(_port, _text_to_int)
BOOLEAN = ValueKind(_boolean, _text_to_boolean)
TIME = ValueKind(parse_time_s, dump=format_time)
REMOTE_DIR = ValueKind(_remote_dir)
CLUSTER_DIR = ValueKind(_cluster_dir)
PROLOGUE = ValueKind(_prologue)
PATH = ValueKind(_path, dump=str)
HOP = ValueKind(_hop, dump=str)
HOPS = list_of(_hop, dump=str)
FORWARDS = list_of(_forward, dump=str)
SHARED_FORWARDS = list_of(_shared_forward, dump=str)
LINE = ValueKind(single_line)
LINES = list_of(single_line)


def module_name(raw: object) -> str:
    """A Python module's dotted name."""
    text = single_line(raw)
    if not all(part.isidentifier() for part in text.split(".")):
        raise BadValue(f"{text!r} is not a Python module's name", "for example: torch")
    return text


#: As text: names with commas between them.
MODULES = list_of(module_name)


def profile_name(raw: object) -> str:
    """A profile's name is a file name without `.toml`: never a path."""
    text = single_line(raw)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise BadValue(
            f"{text!r} is not a profile's name", "letters, digits, '_', '.' and '-' only"
        )
    return text


PROFILE = ValueKind(profile_name)


def _words_from_text(text: str) -> object:
    if text.lstrip().startswith("["):
        return _text_to_list(text)
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadValue(f"{text!r}: {error}") from None


#: Words of an argv. As text they are split like a shell does: options hold commas.
WORDS = ValueKind(LINES.parse, _words_from_text, LINES.dump)
