"""The lines for ranks, each as a plan for one rank: pdb's words in DAP."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Literal

from tunnelkit.debug.console.commands import ChooseFrame, Evaluate, ShowSource
from tunnelkit.debug.console.console_breakpoints import ConsoleBreakpoint, ConsoleBreakpoints
from tunnelkit.debug.console.plans import (
    ENDED,
    Begin,
    LocalSource,
    Missing,
    NextStop,
    Plan,
    Request,
    Said,
    bring_helper,
    choose_main,
    learn_frames,
    local_lines,
    not_stopped,
    prepare_frame,
    refused,
    set_breakpoints,
)
from tunnelkit.debug.console.rank_state import RankThere, StoppedFrame
from tunnelkit.debug.console.values import (
    LONGEST,
    LONGEST_WHOLE,
    Reading,
    arguments_arguments,
    read_statement,
    read_value,
    source_arguments,
    statement_arguments,
    value_arguments,
)
from tunnelkit.debug.dap.messages import text, whole
from tunnelkit.debug.ranks.console_messages import OPEN_EDITOR

#: Before the text of an exception that is another's cause or context.
_CHAINED = "chained exception"
#: Lines that `l` shows, and at most `ll`.
_LISTED = 11
_MOST_LISTED = 100


def evaluate(rank: RankThere, command: Evaluate) -> Plan:
    """`p x`, `x`, `x = 1`."""
    frame = yield from prepare_frame(rank)
    if isinstance(frame, Missing):
        return frame
    longest = LONGEST_WHOLE if command.whole else LONGEST
    asked = value_arguments(frame.id, command.source, command.how, longest)
    reply = yield Request("evaluate", asked, together=True, prints=True)
    reading = read_value(reply.success, reply.message, reply.content, longest)
    output = reply.output + reading.output
    if reading.kind == "statement":
        asked = statement_arguments(frame.id, command.source)
        reply = yield Request("evaluate", asked, together=True, prints=True)
        return Said(_joined(output + reply.output, read_statement(reply.success, reply.message)))
    if not reply.success:
        # The code may be gone from the rank: the next line brings it again.
        rank.has_helper = False
    is_value = reading.kind == "value" and not output
    return Said(_joined(output, with_size(reading)), is_value)


def with_size(reading: Reading) -> str:
    """The text of a value; of a cut one with its size and checksum."""
    if not reading.checksum:
        return reading.text
    return f"{reading.text}... ({reading.size:,} characters, checksum {reading.checksum})"


def _joined(output: str, answer: str) -> str:
    output = output.removesuffix("\n")
    return f"{output}\n{answer}" if output and answer else output or answer


def show_arguments(rank: RankThere) -> Plan:
    """`a`."""
    frame = yield from prepare_frame(rank)
    if isinstance(frame, Missing):
        return frame
    asked = arguments_arguments(frame.id)
    reply = yield Request("evaluate", asked)
    return Said(with_size(read_value(reply.success, reply.message, reply.content, LONGEST)))


def move(
    rank: RankThere, command: Literal["next", "stepIn", "stepOut"], source: LocalSource
) -> Plan:
    """`n`, `s`, `r`: the answer is where the rank stops next."""
    missing = not_stopped(rank)
    if missing is not None:
        return missing
    yield from choose_main(rank)
    reply = yield Request(command, {"threadId": rank.thread}, together=True)
    if not reply.success:
        rank.stays()
        return refused(reply)
    yield NextStop()
    return (yield from where_it_stopped(rank, source))


def where_it_stopped(rank: RankThere, source: LocalSource) -> Plan:
    """Say where a stopped rank is, with the line of the source."""
    yield from learn_frames(rank)
    return Said(stopped_at(rank, source))


def stopped_at(rank: RankThere, source: LocalSource) -> str:
    """`train.py:88 step   dist.all_reduce(grad)`, as far as it is known."""
    frame = rank.frame
    if frame is None:
        return f"stopped ({rank.stop_reason or 'for an unknown reason'})"
    code = source_line(frame, source)
    exception = f"   {rank.exception}" if rank.exception else ""
    if frame.chained:
        exception = f"   ({_CHAINED}: {frame.chained})"
    thread = f"   ({_other_thread(rank)})" if rank.lacks_main else ""
    return frame.place + exception + thread + (f"   {code}" if code else "")


def _other_thread(rank: RankThere) -> str:
    return f"thread {rank.thread_name}; the main thread is in native code"


def source_line(frame: StoppedFrame, source: LocalSource) -> str:
    """The line of a frame without its indent; "" if its source is not on the laptop."""
    lines = local_lines(frame, source)
    return lines[frame.line - 1].strip() if lines and 0 < frame.line <= len(lines) else ""


def pause(rank: RankThere, source: LocalSource) -> Plan:
    """`pause`: the answer is where it stops."""
    if rank.state in ("waiting", "ended"):
        return not_stopped(rank) or Missing(ENDED)
    if rank.state == "running":
        reply = yield Request("pause", {"threadId": "*"}, together=True)
        if not reply.success:
            return refused(reply)
        yield NextStop()
    return (yield from where_it_stopped(rank, source))


def go(rank: RankThere, breakpoints: ConsoleBreakpoints) -> Plan:
    """`c`: run on, or begin, with the breakpoints that are wanted now."""
    if rank.state == "ended":
        return Missing(ENDED)
    yield from set_breakpoints(rank, breakpoints)
    if rank.state == "waiting":
        reply = yield Begin()
        if not reply.success:
            return refused(reply)
        if rank.state == "waiting":
            rank.runs_on()
        # As the program has begun, the debugger takes what it has refused before.
        yield from set_breakpoints(rank, breakpoints)
        return Said("begins")
    if rank.state != "stopped":
        return Said("runs already")
    reply = yield Request("continue", {"threadId": rank.thread}, together=True)
    if reply.success:
        return Said("runs on")
    rank.stays()
    return refused(reply)


def where(rank: RankThere, source: LocalSource) -> Plan:
    """`w`: the stack, oldest frame first, the chosen one marked; then chained exceptions."""
    missing = not_stopped(rank)
    if missing is not None:
        return missing
    yield from learn_frames(rank)
    if not rank.frames:
        return Missing("the debugger gives no frames")
    places = [f"{frame.file}:{frame.line}" for frame in rank.frames]
    wide = min(max(map(len, places)), 30)
    deep = min(max(len(frame.function) for frame in rank.frames), 24)
    rows = [
        f"{'>' if index == rank.at else ' '} {place:<{wide}}   {frame.function:<{deep}}   "
        f"{source_line(frame, source)}".rstrip()
        for index, (place, frame) in enumerate(zip(places, rank.frames, strict=True))
    ]
    stacks: dict[str, list[str]] = {"": []}
    for row, frame in zip(rows, rank.frames, strict=True):
        stacks.setdefault(frame.chained, []).append(row)
    lines = [_other_thread(rank)] if rank.lacks_main else []
    lines += stacks.pop("")[::-1]
    for said, chained in stacks.items():
        # pydevd has these oldest first.
        lines += [f"{_CHAINED}: {said}", *chained]
    return Said("\n".join(lines))


def choose_frame(rank: RankThere, command: ChooseFrame, source: LocalSource) -> Plan:
    """`u`, `d`."""
    missing = not_stopped(rank)
    if missing is not None:
        return missing
    yield from learn_frames(rank)
    if not rank.frames:
        return Missing("the debugger gives no frames")
    last = len(rank.frames) - 1
    if command.outwards > 0 and rank.at == last:
        return Said("*** Oldest frame")
    if command.outwards < 0 and rank.at == 0:
        return Said("*** Newest frame")
    rank.at = min(max(rank.at + command.outwards, 0), last)
    rank.next_line = 0
    return Said("> " + stopped_at(rank, source))


def show_source(
    rank: RankThere, command: ShowSource, source: LocalSource, breakpoints: ConsoleBreakpoints
) -> Plan:
    """`l`, `ll`: the source around the line, or the next lines."""
    missing = not_stopped(rank)
    if missing is not None:
        return missing
    frame = yield from learn_frames(rank)
    if frame is None:
        return Missing("the debugger gives no frames")
    lines = local_lines(frame, source)
    if lines is None:
        yield from bring_helper(rank)
        reply = yield Request("evaluate", source_arguments(frame.path))
        reading = read_value(reply.success, reply.message, reply.content, LONGEST)
        lines = list(reading.lines)
    if not lines:
        return Said(f"*** the source of {frame.file} is not there")
    first, last = _listed(rank, command, frame, lines)
    rank.next_line = last + 1
    if first > len(lines):
        return Said("[EOF]")
    stops = breakpoints.lines(rank.rank, frame.path)
    rows = (
        f"{number:>4} {'B' if number in stops else ' '}"
        f"{'->' if number == frame.line else '  '} {lines[number - 1]}".rstrip()
        for number in range(first, min(last, len(lines)) + 1)
    )
    return Said("\n".join(rows))


def _listed(
    rank: RankThere, command: ShowSource, frame: StoppedFrame, lines: list[str]
) -> tuple[int, int]:
    """The first and last line to show."""
    if command.whole:
        return function_lines(lines, frame.line)
    if command.first:
        first = command.first if command.last else max(command.first - 5, 1)
        return first, command.last or first + _LISTED - 1
    first = rank.next_line or max(frame.line - 5, 1)
    return first, first + _LISTED - 1


def function_lines(lines: list[str], line: int) -> tuple[int, int]:
    """The first and last line of the innermost function around a line; of the file if in none.

    At most 100 lines around it.
    """
    first, last = 1, len(lines)
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            end = node.end_lineno or node.lineno
            if node.lineno <= line <= end and end - node.lineno <= last - first:
                first, last = node.lineno, end
    return max(first, line - _MOST_LISTED // 2), min(last, line + _MOST_LISTED // 2)


def open_editor(rank: RankThere) -> Plan:
    """`editor N`."""
    if rank.state == "ended":
        return Missing(ENDED)
    reply = yield Request(OPEN_EDITOR, {})
    if not reply.success:
        return refused(reply)
    name, found = f"rank {rank.rank}", reply.content
    if text(found.get("has")):
        return Said(f"{name} is in {text(found.get('has'))} already")
    if text(found.get("opens")):
        return Said(f"{name} opens in {text(found.get('opens'))}")
    port = whole(found.get("port"))
    if port is None:
        return Said(f"{name} has no port of its own; F5 opens a session for each rank")
    return Said(
        f"{name}: attach an editor to 127.0.0.1:{port}\n"
        "in VS Code: `tk vscode --ranks N` writes a configuration for each rank"
    )


# -- breakpoints --------------------------------------------------------------------

#: Returns the number of the breakpoint of the line for a rank; it is made if it is not there.
AddBreakpoint = Callable[[str, RankThere], ConsoleBreakpoint]


def set_breakpoint(
    rank: RankThere, path: str, add: AddBreakpoint, breakpoints: ConsoleBreakpoints
) -> Plan:
    """`b`. path: absolute; "" for the file of the current frame."""
    if rank.state == "ended":
        return Missing(ENDED)
    if not path:
        missing = not_stopped(rank)
        if missing is not None:
            return missing
        frame = yield from learn_frames(rank)
        if frame is None or not frame.path:
            return Missing("the debugger names no file")
        path = frame.path
    found = add(path, rank)
    name = f"Breakpoint {found.number} at {found.name}"
    if rank.state == "waiting":
        return Said(f"{name}, for when it begins")
    wrong = yield from set_breakpoints(rank, breakpoints)
    fault = wrong.get((path, found.line))
    return Said(f"*** {name}: {fault}" if fault else name)


def update_breakpoints(rank: RankThere, answer: str, breakpoints: ConsoleBreakpoints) -> Plan:
    """Send what has changed of the breakpoints. answer: if that goes well."""
    if rank.state in ("running", "stopped"):
        yield from set_breakpoints(rank, breakpoints)
    return Said(answer)
