"""The ranks as plain text for people: header, table of classes, who is missing, stacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from tunnelkit.debug.ranks.arrivals import Arrival, BlockingCalls
from tunnelkit.debug.ranks.fold import fold_ranks
from tunnelkit.debug.ranks.frames import Owner, Project
from tunnelkit.debug.ranks.sample import RankState, StackFrame
from tunnelkit.debug.ranks.stacks import Activity, StackClass
from tunnelkit.debug.ranks_view.outside import outside_lines
from tunnelkit.debug.ranks_view.text_width import (
    cut,
    padded,
    short_place,
    short_ranks,
    width,
    wrapped,
)
from tunnelkit.debug.ranks_view.view import RanksView, did_answer
from tunnelkit.text_format import duration, shown

#: A line of a file on the node, counted from 1; None if it is unknown.
Source = Callable[[str, int], str | None]

_DEFAULT_COLUMNS = 80
_GAP = "  "
_WIDEST_EXCEPTION = 160
_MOST_ROWS, _MOST_STACKS, _MOST_FRAMES, _MOST_ARRIVALS = 30, 5, 10, 6


def describe(
    view: RanksView,
    columns: int = _DEFAULT_COLUMNS,
    source: Source | None = None,
    full: bool = False,
) -> list[str]:
    """Lines for a terminal of `columns`, without colour or escape sequences, none of them wider.

    source: reads the lines that stacks show. full: all classes and whole stacks, instead of at most
    30 classes and the innermost 10 frames of 5 classes, the biggest class aside.
    """
    blocks = [
        _header(view, columns),
        _table(view, columns, full),
        [
            line
            for one in view.arrivals[: None if full else _MOST_ARRIVALS]
            for line in wrapped(arrival_text(one, columns // 2), columns)
        ],
        list(wrapped(calls_text(view.calls, columns // 2), columns)) if view.calls else [],
        outside_lines(view, columns),
        *(_stack(view, one, columns, source, full) for one in _shown_classes(view, full)),
    ]
    lines: list[str] = []
    for block in (one for one in blocks if any(one)):
        lines += ["", *block] if lines else block
    return [cut(line, columns).rstrip() for line in lines]


def _header(view: RanksView, columns: int) -> list[str]:
    total, answered = view.total(), view.answered()
    there = f"{len(view.samples)} of " if view.absent else ""
    who = "all answered" if answered == total else f"{answered} of {total} answered"
    who += f", {view.took_s:.1f} s"
    if all(one.state is RankState.UNDEBUGGED for one in view.samples):
        who = "no debugger"
    parts = [
        f"{there}{_count(total, 'rank')} on {_count(view.nodes(), 'node')}",
        *([shown(view.program)] if view.program else []),
        who,
    ]
    lines = list(wrapped(" · ".join(parts), columns, " · "))
    clock = shown(view.clock)
    if clock and width(lines[0]) + len(_GAP) + width(clock) <= columns:
        lines[0] = padded(lines[0], columns - width(clock)) + clock
    for one in view.classes:
        if not did_answer(one.state) and one.state is not RankState.UNDEBUGGED:
            lines += wrapped(_missing(one, columns // 2), columns)
    if view.absent:
        lines += wrapped(absent_text(view.absent, columns // 2), columns)
    return lines


def absent_text(ranks: Sequence[int], columns: int = _DEFAULT_COLUMNS) -> str:
    """A sentence about ranks that have not dialled in. Their list is shortened to `columns`."""
    return f"{_ranks(ranks, columns)} {_have(ranks)} not dialled in"


def _missing(found: StackClass, columns: int) -> str:
    """The reason why a class did not answer, as a sentence."""
    ranks, nodes = _ranks(found.ranks, columns), ", ".join(map(shown, found.nodes[:3]))
    more = f" and {_count(len(found.nodes) - 3, 'node')} more" if len(found.nodes) > 3 else ""
    if found.activity is Activity.ENDED:
        return f"{ranks} {_have(found.ranks)} ended ({nodes}{more})"
    why = state_text(found)
    reason = "" if why == "no answer" else f": {why}"
    return f"no answer from {ranks} ({nodes}{more}){reason}"


def _table(view: RanksView, columns: int, full: bool) -> list[str]:
    classes = view.classes if full else view.classes[:_MOST_ROWS]
    if not classes:
        return []
    project = Project(view.roots)
    names = max(len(one.name) for one in classes)
    count = max(len(str(len(one.ranks))) for one in classes)
    folded = [fold_ranks(one.ranks) for one in classes]
    states = [state_text(one, view.unmoved_s(one)) for one in classes]
    places = [place_text(project, one.form, columns) for one in classes]
    room = columns - names - count - 4 * len(_GAP)
    ranks_w = min(_widest(["ranks", *folded]), max(room // 4, 8))
    state_w = min(_widest(["state", *states]), max((room - ranks_w) * 3 // 8, 12))
    where_w = min(_widest(["where", *places]), max(room - ranks_w - state_w, 5))
    state_w = max(room - ranks_w - where_w, state_w)
    lines = [
        _row(" " * names, padded("ranks", ranks_w), "n".rjust(count), padded("where", where_w))
        + f"{_GAP}state"
    ]
    for one, ranks, state in zip(classes, folded, states, strict=True):
        first, *rest = wrapped(state, state_w)
        row = _row(
            one.name.ljust(names),
            padded(short_ranks(ranks, ranks_w), ranks_w),
            str(len(one.ranks)).rjust(count),
            padded(place_text(project, one.form, where_w), where_w),
        )
        lines.append(row + _GAP + first)
        lines += [" " * (width(row) + len(_GAP)) + line for line in rest]
    left_out = view.classes[len(classes) :]
    if left_out:
        ranks_left = sum(len(one.ranks) for one in left_out)
        lines.append(f"and {len(left_out)} more classes of {_count(ranks_left, 'rank')}")
    return lines


def _row(*cells: str) -> str:
    return _GAP.join(cells)


def _widest(texts: Sequence[str]) -> int:
    return max(map(width, texts))


def place_text(project: Project, form: Sequence[StackFrame], columns: int) -> str:
    """The place of a normal form, in `columns`: `train.py:88 step > all_reduce`."""
    own = [one for one in form if project.owner(one.file) is Owner.PROJECT]
    called = [shown(one.function) for one in form[len(own) :]]
    if not own:
        return cut(" > ".join(called) or "-", columns)
    at, path = own[-1], shown(project.path(own[-1].file))
    name = short_place(path.rpartition("/")[2], at.line, columns)
    below = "".join(f" > {one}" for one in called)
    after = f" {shown(at.function)}{below}"
    # The line tells the function, too.
    if called and width(name) + width(after) > columns:
        after = below
    place = short_place(path, at.line, max(columns - width(after), width(name)))
    return cut(place + after, columns)


_STATE = {
    Activity.WAITS: "waits",
    Activity.SPINS: "computes or polls",
    Activity.MOVES: "moves",
    Activity.STOPPED: "stopped by the debugger",
    Activity.WAITING: "waits for a debugger",
    Activity.BUSY_NATIVE: "busy in native code",
    Activity.BLOCKED: "blocked in the kernel",
    Activity.ASLEEP: "asleep, maybe in native code that holds the GIL",
    Activity.SLEEPS: "sleeps or waits",
    Activity.SIGNAL_STOPPED: "stopped by a signal",
    Activity.ENDED: "has ended",
}


def state_text(found: StackClass, unmoved_s: float | None = None) -> str:
    """The state of a class in words. unmoved_s: for how long it has not moved, if known."""
    failure = found.sample.failure
    if found.activity is Activity.FAILED and failure is not None:
        ago = unmoved_s if unmoved_s is not None else failure.age_s
        since = f" {duration(ago)} ago" if 1 <= ago < math.inf else ""
        return f"failed{since}: {cut(shown(failure.summary), _WIDEST_EXCEPTION)}"
    text = _STATE.get(found.activity)
    if text is None:
        silent = found.state in (RankState.SILENT, RankState.ENDED)
        text = "no answer" if silent else "runs"
    details = []
    if found.activity is Activity.SPINS and found.cpu_share is not None:
        details.append(f"{found.cpu_share:.0%} of a CPU")
    process = found.sample.process
    outside = found.state in (RankState.SILENT, RankState.UNDEBUGGED)
    if outside and process and found.activity is not Activity.ENDED:
        if found.activity is Activity.ASLEEP and process.holds_gil:
            text = "in native code that holds the GIL"
        details += [f"state {shown(process.letter)}", *filter(None, [shown(process.wchan)])]
    if details:
        text += f" ({', '.join(details)})"
    moved = found.activity in (Activity.MOVES, Activity.ENDED, Activity.WAITING)
    if unmoved_s is None or moved or not 1 <= unmoved_s < math.inf:
        return text
    same = found.activity in (Activity.WAITS, Activity.SPINS, Activity.UNKNOWN)
    how = ", has not moved for" if same and did_answer(found.state) else " for"
    return f"{text}{how} {duration(unmoved_s)}"


def arrival_text(found: Arrival, columns: int = _DEFAULT_COLUMNS) -> str:
    """A finding as a sentence. Lists of ranks are shortened to `columns`."""
    what = f"{shown(found.operation)} #{found.sequence} of the group {shown(found.group)}"
    waiting = len(found.waiting)
    wait = f"{_count(waiting, 'rank')} {'is' if waiting == 1 else 'are'} waiting in"
    late = [one.rank for one in found.late]
    if late:
        behind = found.late[0].behind
        by = f" ({behind} collectives behind)" if behind > 1 else ""
        said = [f"{_ranks(late, columns)} {_have(late)} not reached {what}{by}", f"{wait} it"]
    else:
        said = [f"{wait} {what}"]
    held = [one.rank for one in found.late if one.state is RankState.STOPPED]
    if held:
        said.append(f"the debugger holds {_ranks(held, columns)}")
    also = [one.rank for one in found.also_behind]
    if also:
        said.append(
            f"{_ranks(also, columns)} {_have(also)} not reached it either and may be waiting for "
            "others"
        )
    if found.silent:
        said.append(f"no answer from {_ranks(found.silent, columns)}")
    if found.ended:
        said.append(f"{_ranks(found.ended, columns)} {_have(found.ended)} ended")
    if found.absent:
        said.append(absent_text(found.absent, columns))
    return "; ".join(said)


def calls_text(calls: BlockingCalls, columns: int = _DEFAULT_COLUMNS) -> str:
    """Ranks and MPI's calls as a sentence; "" if there are none at one. columns: of each list."""
    if not calls.calls:
        return ""
    said = [f"at {shown(name)}: {_ranks(ranks, columns)}" for name, ranks in calls.calls]
    if calls.none:
        said.append(f"at no blocking call of MPI: {_ranks(calls.none, columns)}")
    return "; ".join(said)


def _ranks(ranks: Sequence[int], columns: int) -> str:
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {short_ranks(fold_ranks(ranks), columns)}"


def _have(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _shown_classes(view: RanksView, full: bool) -> list[StackClass]:
    """The classes whose stacks are shown, in the table's order: those with late ranks above all."""
    with_frames = [one for one in view.classes if one.sample.frames]
    if full:
        return with_frames
    biggest = max(view.classes, key=lambda one: len(one.ranks), default=None)
    late = {one.rank for arrival in view.arrivals for one in arrival.late}
    others = [one for one in with_frames if one is not biggest]
    first = sorted(others, key=lambda one: late.isdisjoint(one.ranks))[:_MOST_STACKS]
    return [one for one in others if one in first]


def _stack(
    view: RanksView, found: StackClass, columns: int, source: Source | None, full: bool
) -> list[str]:
    """The stack of a class's lowest rank, innermost frame last."""
    sample, project = found.sample, Project(view.roots)
    frames = project.program(sample.frames)
    left_out = 0 if full else max(len(frames) - _MOST_FRAMES, 0)
    lines = [f"{found.name}  rank {sample.rank} · {shown(sample.node)} · pid {sample.pid}"]
    if left_out:
        lines.append(f"   ({_count(left_out, 'outer frame')} left out)")
    return lines + list(_frame_lines(project, frames[left_out:], columns, source))


def _frame_lines(
    project: Project, frames: Sequence[StackFrame], columns: int, source: Source | None
) -> Iterator[str]:
    places = [
        short_place(_path(project, one.file), one.line, max(columns * 2 // 5, 12)) for one in frames
    ]
    functions = [cut(shown(one.function), max(columns // 4, 8)) for one in frames]
    place_w, function_w = _widest(["", *places]), _widest(["", *functions])
    for at, one in enumerate(frames):
        text = source(one.file, one.line) if source else None
        mark = ">" if at == len(frames) - 1 else " "
        line = f" {mark} {padded(places[at], place_w)}{_GAP}{padded(functions[at], function_w)}"
        yield f"{line}{_GAP}{shown(text.expandtabs(4).strip())}" if text else line


def _path(project: Project, file: str) -> str:
    """A path in the project within it; a library's by the name that it is imported by."""
    if project.owner(file) is Owner.PROJECT:
        return shown(project.path(file))
    return shown(file.rpartition("-packages/")[2])
