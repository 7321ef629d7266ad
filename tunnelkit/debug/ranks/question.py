"""The question to a rank where it is, and its answer.

pydevd evaluates an expression without a frame in a thread of its own while the program runs, and
returns a string whole in the context `clipboard`.
"""

from __future__ import annotations

import ast
import hashlib
import json
from functools import lru_cache
from importlib.resources import files
from typing import TypedDict

from tunnelkit.debug.dap.messages import Message, objects, section, text, whole
from tunnelkit.debug.ranks.sample import GroupProgress, RankState, StackFrame

#: More are cut by the rank itself (debuggee/evaluated/rank_look.py).
_MOST_FRAMES, _MOST_GROUPS, _MOST_MEMBERS = 200, 64, 4096
_LONGEST_NAME = 500
#: torch names the group of all ranks so.
_WORLD = "default_pg"
_UNNAMED = ("", "undefined")


class EvaluateArguments(TypedDict):
    """Arguments of `evaluate`, without a frame."""

    expression: str
    context: str


@lru_cache(maxsize=2)
def where_are_you(*, known: bool) -> EvaluateArguments:
    """Return the question. known: the process has been asked before, and has the code for it."""
    source = files("tunnelkit.debuggee.evaluated").joinpath("rank_look.py").read_text("utf-8")
    name = f"_tk_rank_look_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    ask = f"__import__('sys').modules[{name!r}].look()"
    if not known:
        ask = (
            f"(lambda s, m: (exec({source!r}, m.__dict__), s.modules.__setitem__({name!r}, m), "
            f"m.look())[2])(__import__('sys'), type(__import__('sys'))({name!r}))"
        )
    return {"expression": ask, "context": "clipboard"}


_STATES = {"client": RankState.WAITING, "stopped": RankState.STOPPED}


class Position(TypedDict):
    """The answer of a rank, checked. The fields are those of `RankSample`.

    failed: the type of the uncaught exception that it is stopped at, to which `frames` belong; ""
    for none. text: of that exception, as far as it is known without code of the program.
    """

    state: RankState
    frames: tuple[StackFrame, ...]
    instruction: int
    cpu_s: float | None
    groups: tuple[GroupProgress, ...]
    failed: str
    text: str


def position(response: Message) -> Position | None:
    """Read a rank's response to `where_are_you`; None if it is none."""
    result = text(section(response, "body").get("result"))
    try:
        # Some versions of debugpy write a string as Python does.
        answer = json.loads(result if result.startswith("{") else ast.literal_eval(result))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    if response.get("success") is not True or not isinstance(answer, dict):
        return None
    failed = _name(answer.get("failed"))
    # Another thread than the main one may have failed.
    held = RankState.STOPPED if failed else RankState.RUNNING
    return {
        "state": _STATES.get(text(answer.get("held")), held),
        "frames": _frames(answer.get("frames")),
        "instruction": _at_least(-1, answer.get("instruction")),
        "cpu_s": _seconds(answer.get("cpu_s")),
        "groups": tuple(map(_group, objects(answer.get("groups"))[:_MOST_GROUPS])),
        "failed": failed,
        "text": text(answer.get("text"))[:_LONGEST_NAME],
    }


def _frames(sent: object) -> tuple[StackFrame, ...]:
    frames = map(_frame, sent[:_MOST_FRAMES]) if isinstance(sent, list) else ()
    return tuple(frame for frame in frames if frame is not None)


def _frame(sent: object) -> StackFrame | None:
    if not isinstance(sent, list) or len(sent) != 3:
        return None
    file, line, function = sent
    are_plain = type(file) is str and type(function) is str and type(line) is int
    if are_plain and len(file) <= _LONGEST_NAME and len(function) <= _LONGEST_NAME:
        return _stack_frame(file, line, function)
    return StackFrame(_name(file), _at_least(0, line), _name(function))


@lru_cache(maxsize=1024)
def _stack_frame(file: str, line: int, function: str) -> StackFrame:
    """One frame for all ranks that have the same: most have the same stack."""
    return StackFrame(file, _at_least(0, line), function)


def _group(sent: Message) -> GroupProgress:
    name, description = _name(sent.get("name")), _name(sent.get("description"))
    if description == _WORLD:
        name = "world"
    elif description not in _UNNAMED:
        name = f"{description} ({name})"
    ranks = sent.get("ranks")
    # Each of 1,024 ranks sends the same 1,024 members: not one by one through a function.
    members = [
        rank
        for rank in (ranks[:_MOST_MEMBERS] if isinstance(ranks, list) else ())
        if type(rank) is int and rank >= 0
    ]
    operation = _name(sent.get("operation")).rpartition(":")[2]
    return GroupProgress(
        name,
        _ascending(tuple(members)),
        _at_least(0, sent.get("sequence")),
        operation,
    )


@lru_cache(maxsize=16)
def _ascending(members: tuple[int, ...]) -> tuple[int, ...]:
    """One tuple for all that have the same members."""
    return tuple(sorted(set(members)))


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        return None
    return float(value)


def _name(value: object) -> str:
    return text(value)[-_LONGEST_NAME:]


def _at_least(least: int, value: object) -> int:
    number = whole(value)
    return least if number is None or not least <= number < 2**63 else number
