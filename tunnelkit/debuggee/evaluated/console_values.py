"""Values of this process for a console, as pdb shows them, cut here so that little is sent.

The console has pydevd evaluate these functions (debug/console/values.py). Each returns JSON with
`kind`: value, nothing, error or statement. It imports nothing that the debugger has not imported,
but pprint when the user asks for it. Python 3.8.
"""

import io
import json
import linecache
import re
import sys
import zlib
from types import FrameType
from typing import Dict, List, Optional

_ADDRESS = re.compile(" at 0x[0-9a-fA-F]{6,}")
_LONGEST_ERROR = 2000
_LONGEST_OUTPUT = 20000
_MOST_ARGUMENTS = 100
_LONGEST_ARGUMENT = 500
_MOST_LINES = 5000


def value(source: str, names: Dict[str, object], how: str, longest: int) -> str:
    """Evaluate an expression. names: the frame's. how: line, p, pp or whatis.

    A `line` that is no expression is a statement, which the caller runs. longest: characters of the
    text that are sent; its size and checksum tell the rest.
    """
    try:
        code = compile(source, "<console>", "eval", 0, True)
    except SyntaxError as error:
        if how == "line" and _is_statement(source):
            return json.dumps({"kind": "statement"})
        return _error(error)
    except BaseException as error:
        return _error(error)
    kept = sys.stdout, sys.stderr
    written = sys.stdout = sys.stderr = _Output()
    try:
        found = eval(code, names)  # noqa: S307 - the user has typed it
        if how == "line" and found is None:
            return _with_output(json.dumps({"kind": "nothing"}), written)
        return _with_output(_cut(_text(found, how), longest), written)
    except BaseException as error:
        # SystemExit, too: pydevd would never answer.
        return _with_output(_error(error), written)
    finally:
        sys.stdout, sys.stderr = kept


class _Output(io.StringIO):
    """Takes what an expression prints; the debugger sends that of statements only."""

    def write(self, text: str) -> int:
        super().write(text[: max(_LONGEST_OUTPUT - self.tell(), 0)])
        return len(text)


def _with_output(answer: str, written: io.StringIO) -> str:
    output = written.getvalue()
    return json.dumps(dict(json.loads(answer), output=output)) if output else answer


def failure() -> str:
    """Return the exception that the caller handles."""
    return _error(sys.exc_info()[1])


def arguments(longest: int) -> str:
    """Return the arguments of the frame that the debugger evaluates this in."""
    frame = _chosen_frame()
    if frame is None:
        return json.dumps({"kind": "error", "text": "*** the frame has no arguments to show"})
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    rows: List[str] = []
    for name in code.co_varnames[: min(count, _MOST_ARGUMENTS)]:
        try:
            text = repr(frame.f_locals[name])
        except KeyError:
            text = "*** undefined ***"
        except BaseException as error:
            text = _error_text(error)
        if len(text) > _LONGEST_ARGUMENT:
            cut = f"... ({len(text):,} characters, checksum {_checksum(text)})"
            text = text[:_LONGEST_ARGUMENT] + cut
        rows.append(name + " = " + text)
    return _cut("\n".join(rows), longest) if rows else json.dumps({"kind": "nothing"})


def _chosen_frame() -> Optional[FrameType]:
    """Return the frame that pydevd was asked about: its own function has it, as it calls this.

    Its place on the stack would not tell it: a recursion has several at one line, and the frames
    of an exception are no longer on the stack.
    """
    caller: Optional[FrameType] = sys._getframe()
    while caller is not None:
        code = caller.f_code
        if code.co_name == "evaluate_expression" and "pydevd" in code.co_filename:
            found: Optional[FrameType] = caller.f_locals.get("frame")
            return found
        caller = caller.f_back
    return None


def lines(file: str) -> str:
    """Return the lines of a source file of this host, as the program has read it."""
    found = linecache.getlines(file)[:_MOST_LINES]
    return json.dumps({"kind": "lines", "lines": [line.rstrip("\n")[:200] for line in found]})


def _is_statement(source: str) -> bool:
    try:
        compile(source, "<console>", "exec", 0, True)
    except BaseException:
        return False
    return True


def _text(found: object, how: str) -> str:
    if how == "pp":
        import pprint

        return pprint.pformat(found)
    if how == "whatis":
        code = getattr(getattr(found, "__func__", found), "__code__", None)
        if code is not None:
            return ("Method " if hasattr(found, "__func__") else "Function ") + str(code.co_name)
        if isinstance(found, type):
            return "Class " + found.__module__ + "." + found.__qualname__
        return str(type(found))
    return repr(found)


def _cut(text: str, longest: int) -> str:
    answer: Dict[str, object] = {"kind": "value", "text": text[:longest], "size": len(text)}
    if len(text) > longest:
        answer["sum"] = _checksum(text)
    return json.dumps(answer)


def _checksum(text: str) -> str:
    plain = _ADDRESS.sub(" at 0x", text).encode("utf-8", "backslashreplace")
    return f"{zlib.crc32(plain):08x}"


def _error(error: Optional[BaseException]) -> str:
    return json.dumps({"kind": "error", "text": _error_text(error)[:_LONGEST_ERROR]})


def _error_text(error: Optional[BaseException]) -> str:
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = kind.__module__ + "." + name
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except BaseException:
        text = "<its text can't be made>"
    return "*** " + name + (": " + text if text else "")
