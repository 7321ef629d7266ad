"""The requests that evaluate a user's Python in a rank, and what their answers say.

The code that makes the answers is debuggee/evaluated/console_values.py: a rank is sent it once.
"""

from __future__ import annotations

import ast
import hashlib
import json
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from tunnelkit.debug.dap.messages import Message, text, whole

#: `line`: an expression, of which None is not shown, or a statement.
How = Literal["line", "p", "pp", "whatis"]
Kind = Literal["value", "nothing", "error", "statement", "lines"]

#: Characters of a value that a rank sends.
LONGEST = 2_000
LONGEST_WHOLE = 200_000
#: Before the JSON of a statement's failure, within pydevd's traceback.
_FAILURE = "tk-console-failure "
_LONGEST_ERROR = 2_000
_MOST_LINES = 5_000
_LONGEST_OUTPUT = 20_000
_KINDS: dict[str, Kind] = {
    "value": "value",
    "nothing": "nothing",
    "error": "error",
    "statement": "statement",
    "lines": "lines",
}


@lru_cache(maxsize=1)
def _helper() -> tuple[str, str]:
    source = files("tunnelkit.debuggee.evaluated").joinpath("console_values.py").read_text("utf-8")
    return f"_tk_console_values_{hashlib.sha256(source.encode()).hexdigest()[:12]}", source


def helper_arguments() -> Message:
    """Return arguments of `evaluate`, without a frame, that bring the code to a rank."""
    name, source = _helper()
    ask = (
        f"(lambda s, m: (exec({source!r}, m.__dict__), s.modules.__setitem__({name!r}, m), 'tk')[2]"
        f")(__import__('sys'), type(__import__('sys'))({name!r}))"
    )
    return {"expression": ask, "context": "clipboard"}


def value_arguments(frame: int, source: str, how: How, longest: int) -> Message:
    """Return arguments of `evaluate` for an expression of the user's, in a frame.

    pydevd evaluates with all names of the frame as globals, which a lambda there has, too;
    `globals()` would be the module's alone.
    """
    call = f"{_module()}.value({source!r}, (lambda: 0).__globals__, {how!r}, {longest})"
    return {"expression": call, "frameId": frame, "context": "clipboard"}


def statement_arguments(frame: int, source: str) -> Message:
    """Return arguments of `evaluate` for a statement of the user's, in a frame.

    pydevd never answers about one that raises SystemExit.
    """
    code = (
        f"try:\n{textwrap.indent(source, '    ')}\nexcept BaseException:\n"
        f"    raise RuntimeError({_FAILURE!r} + {_module()}.failure()) from None"
    )
    return {"expression": code, "frameId": frame, "context": "repl"}


def arguments_arguments(frame: int) -> Message:
    """Return arguments of `evaluate` for the arguments of a frame's function."""
    call = f"{_module()}.arguments({LONGEST})"
    return {"expression": call, "frameId": frame, "context": "clipboard"}


def source_arguments(path: str) -> Message:
    """Return arguments of `evaluate`, without a frame, for the lines of a file on the node."""
    return {"expression": f"{_module()}.lines({path!r})", "context": "clipboard"}


def _module() -> str:
    return f"__import__('sys').modules[{_helper()[0]!r}]"


@dataclass(frozen=True)
class Reading:
    """A rank's answer, checked.

    text: of a value or an error; its line breaks are kept. size: characters of the value; more than
    `text` has if it was cut. checksum: of a cut one, "" of others. output: what the
    expression has printed. lines: of a source file.
    """

    kind: Kind
    text: str = ""
    size: int = 0
    checksum: str = ""
    output: str = ""
    lines: tuple[str, ...] = ()


def read_value(success: bool, message: str, body: Message, longest: int) -> Reading:
    """Read the response to one of the requests above. longest: characters of its text."""
    result = text(body.get("result"))
    if not success:
        return Reading("error", "*** " + _last_line(message))
    answer = _object(result)
    if answer is None:
        return Reading("error", "*** " + (_last_line(result) or "the rank gave no answer"))
    value = text(answer.get("text"))[:longest]
    lines = answer.get("lines")
    return Reading(
        _KINDS.get(text(answer.get("kind")), "error"),
        value,
        max(whole(answer.get("size")) or 0, len(value)),
        text(answer.get("sum"))[:8],
        text(answer.get("output"))[:_LONGEST_OUTPUT],
        tuple(text(one) for one in lines[:_MOST_LINES]) if isinstance(lines, list) else (),
    )


def read_statement(success: bool, message: str) -> str:
    """Return the error of a statement's response, as pdb shows it; "" if it ran."""
    if success:
        return ""
    _, marked, value = message.rpartition(_FAILURE)
    # pydevd's own text may follow the JSON.
    answer = _object(value.strip().split("\n")[0]) if marked else None
    if answer is None:
        return "*** " + _last_line(message)
    return text(answer.get("text"))[:_LONGEST_ERROR] or "*** it failed"


def _object(result: str) -> Message | None:
    try:
        answer = json.loads(result if result.startswith("{") else _unquoted(result))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _unquoted(result: str) -> str:
    """Return the string that some versions of debugpy write as Python does."""
    inner = result[1:-1]
    if result == f"'{inner}'" and "\\" not in inner and "'" not in inner:
        return inner  # most: to parse it as Python takes longer than all else in an answer
    return text(ast.literal_eval(result))


def _last_line(message: str) -> str:
    lines = message.strip().splitlines()
    return lines[-1].strip()[:_LONGEST_ERROR] if lines else ""
