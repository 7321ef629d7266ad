"""Tracebacks in a log: the last one, and the one of the rank that failed first."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tunnelkit.diagnosis.ended.log.raised import Chain, Frame, Raised, chains
from tunnelkit.diagnosis.ended.log.streams import Line, Stream, streams

_LAUNCHER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_SIGNALLED = "torch.distributed.elastic.multiprocessing.api.SignalException"
#: Raised on the way out, while the true exception is handled: these, or those of these functions.
_WRAPPERS = frozenset({_LAUNCHER, _SIGNALLED, "SystemExit"})
_CLEAN_UP = frozenset({
    "__exit__", "__aexit__", "destroy_process_group", "close", "finish", "cleanup", "teardown",
    "shutdown", "flush", "disconnect",
})  # fmt: skip
_CALLS_CLEAN_UP = re.compile(r"\.(?:close|finish|cleanup|teardown|shutdown|flush|disconnect)\(")
_ROOT = "Root Cause (first observed failure):"
_ENTRY = re.compile(r"  (time|host|rank|exitcode|error_file|traceback) *: (.*)")
_RANK = re.compile(r"([0-9]{1,9}) \(local_rank: ([0-9]{1,9})\)")
_CODE = re.compile(r"(-?[0-9]{1,9}) \(pid: ([0-9]{1,9})\)")
_ROOT_LINES = 300
#: A traceback that has so many lines of other origin behind it was handled, or is another's cause.
_MOST_AFTER = 20
_SEVERAL = re.compile(r"srun: error: .*\btasks? [0-9]|mpirun (?:detected|noticed) ")
_TASK = re.compile(r"srun: error: \S+: tasks? (?P<tasks>[0-9,\[\]-]+): ")
_OF_SLURM = ("srun: ", "slurmstepd")
# What a rank says when another one has gone.
_CONSEQUENCE = re.compile(
    r"(?:[\w.]*\.)?(?:DistBackendError|DistNetworkError|DistStoreError|ConnectionResetError|"
    r"ConnectionAbortedError|BrokenPipeError|KeyboardInterrupt|SignalException)$"
)
_GONE = re.compile(r"Connection (?:closed|reset) by (?:remote )?peer|Connection reset by peer")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python[0-9.]+/|^<frozen |^<__array")


@dataclass(frozen=True, slots=True)
class RootCause:
    """The table that torchrun prints: which rank failed first.

    exit_code: negative: it was ended by that signal. error_file: "" if there is none. time: as
    printed, in the node's time zone. raised: the error's traceback, if the program recorded it.
    """

    rank: int
    local_rank: int
    exit_code: int | None = None
    pid: int | None = None
    host: str = ""
    time: str = ""
    error_file: str = ""
    raised: tuple[Raised, ...] = ()


@dataclass(frozen=True, slots=True)
class Traceback:
    """A traceback. Its type, message and place are those of the cause.

    raised: the chain of exceptions, the first cause first. rank: None if nothing says it. thread:
    "" for the main one. first_line, last_line: where it is in the log, from 1; 0: only torchrun's
    table has it. label: of the `Stream` that it is in. aside: the lines, from 1, of the tracebacks
    behind it; followed: one of them ended a thread or another rank.
    """

    raised: tuple[Raised, ...]
    rank: int | None
    first_line: int
    last_line: int
    thread: str = ""
    root: RootCause | None = None
    label: str = ""
    aside: frozenset[int] = frozenset()
    followed: bool = False

    @property
    def cause(self) -> Raised:
        """The first exception of those that led to the end; what was handled before did not."""
        return self.raised[self._cause_at]

    @property
    def cause_line(self) -> int:
        """Its first line in the log; above it stand exceptions that were handled."""
        if not any(one.handled for one in self.raised[: self._cause_at]):
            return self.first_line
        first = min(one.first_line for one in self.raised[self._cause_at :])
        return max(first, self.first_line) if first <= self.last_line else self.first_line

    @property
    def handled(self) -> tuple[Raised, ...]:
        """The exceptions that the program handled when the cause was raised."""
        return tuple(one for one in self.raised[: self._cause_at] if one.handled)

    @property
    def is_last(self) -> bool:
        """False if another exception was raised while the cause was handled: on the way out."""
        return not any(one.handled for one in self.raised[self._cause_at :])

    @property
    def _cause_at(self) -> int:
        at = len(self.raised) - 1
        while at and self.raised[at - 1].handled and _is_wrapper(self.raised[at]):
            at -= 1
        while at and not self.raised[at - 1].handled:
            at -= 1
        return at

    @property
    def type(self) -> str:
        """The type, as printed; `Fatal Python error` where faulthandler wrote it."""
        return self.cause.type

    @property
    def message(self) -> str:
        """The message; "" if there is none."""
        return self.cause.message

    @property
    def innermost(self) -> Frame | None:
        """The frame that raised it."""
        return self.cause.frames[-1] if self.cause.frames else None

    @property
    def place(self) -> Frame | None:
        """The innermost frame in code that is no library's; else the innermost."""
        own = [one for one in self.cause.frames if not _LIBRARY.search(one.file)]
        return own[-1] if own else self.innermost

    @property
    def file(self) -> str:
        """The file that raised it; "" if no frame was printed."""
        return self.innermost.file if self.innermost else ""

    @property
    def line(self) -> int | None:
        """The line that raised it."""
        return self.innermost.line if self.innermost else None

    @property
    def function(self) -> str:
        """The function that raised it."""
        return self.innermost.function if self.innermost else ""

    @property
    def source(self) -> str:
        """The source line, if it was printed."""
        return self.innermost.source if self.innermost else ""


def last_traceback(text: str) -> Traceback | None:
    """Return the last traceback; not the launcher's own, unless there is no other."""
    found = sorted(_tracebacks(streams(text)), key=lambda one: one.last_line)
    kept = [one for one in found if not _launchers(one)] or found
    return kept[-1] if kept else None


def last_of_rank(text: str, rank: int) -> Traceback | None:
    """Return the last traceback of one rank."""
    found = [one for one in _tracebacks(streams(text)) if one.rank == rank]
    return max(found, key=lambda one: one.last_line, default=None)


def first_failure(text: str) -> Traceback | None:
    """Return the traceback of the rank that failed first.

    torchrun's table says which one that was. Else it is the first one by place in the log, and
    those that only lost their connection to another rank come last.
    """
    parts = streams(text)
    every = [(chain, part) for part in parts for chain in chains(part.lines)]
    found = [_traceback(chain, part) for chain, part in every if not chain.ignored]
    first = _first(found, parts, text)
    return _with_later(first, [chain for chain, _ in every]) if first is not None else None


def at_exit_lines(text: str) -> frozenset[int]:
    """Return the lines, from 1, of exceptions that were raised when the program had ended."""
    if "atexit" not in text:
        return frozenset()
    found = (chain for part in streams(text) for chain in chains(part.lines) if chain.at_exit)
    return frozenset(at for one in found for at in range(one.begin, one.last_line + 1))


def _with_later(first: Traceback, every: list[Chain]) -> Traceback:
    """Add what stands behind it."""
    later = [one for one in every if first.first_line and one.begin > first.last_line]
    aside = (number for one in later for number in range(one.begin, one.last_line + 1))
    return replace(first, aside=frozenset(aside), followed=any(not one.ignored for one in later))


def _first(found: list[Traceback], parts: list[Stream], text: str) -> Traceback | None:
    root = _first_root(parts)
    own = [one for one in found if not _launchers(one)]
    if root is not None:
        return _of_root(own, root, parts) or _bare(found, root)
    finals = _finals(own)
    if len(finals) == 1 and _SEVERAL.search(text):
        finals = _of_tasks(own, parts)
    return min(finals, key=lambda one: (_is_consequence(one), one.first_line), default=None)


def root_cause(text: str) -> RootCause | None:
    """Return what torchrun's table says."""
    return _first_root(streams(text))


def lines_of(text: str, found: Traceback) -> list[str]:
    """Return the lines of a traceback of this text, without labels."""
    if found.first_line == 0:
        return [line for one in found.raised for line in _rendered(one)]
    return [
        line.text
        for part in streams(text)
        if part.label == found.label
        for line in part.lines
        if found.first_line <= line.number <= found.last_line
    ]


def _rendered(raised: Raised) -> list[str]:
    lines = []
    for frame in raised.frames:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        lines += [f"    {frame.source}"] if frame.source else []
    return [*lines, f"{raised.type}: {raised.message}" if raised.message else raised.type]


def _tracebacks(parts: list[Stream]) -> list[Traceback]:
    found = [(chain, part) for part in parts for chain in chains(part.lines)]
    return [_traceback(chain, part) for chain, part in found if not chain.ignored]


def _traceback(chain: Chain, part: Stream) -> Traceback:
    lines = (chain.first_line, chain.last_line)
    return Traceback(chain.raised, part.rank, *lines, chain.thread, label=part.label)


def _is_wrapper(raised: Raised) -> bool:
    return raised.type in _WRAPPERS or any(
        one.function in _CLEAN_UP or _CALLS_CLEAN_UP.search(one.source) for one in raised.frames
    )


def _launchers(one: Traceback) -> bool:
    return one.raised[-1].type in (_LAUNCHER, _SIGNALLED)


def _is_consequence(one: Traceback) -> bool:
    return bool(_CONSEQUENCE.match(one.type) or _GONE.search(one.message))


def _finals(found: list[Traceback]) -> list[Traceback]:
    """Return the last traceback of each rank; of lines without a rank one.

    Those of threads right behind the main one's are of threads that end with it."""
    last: dict[int | None, Traceback] = {}
    ends: dict[int | None, int] = {}
    for one in sorted(found, key=lambda one: one.last_line):
        before = last.get(one.rank)
        near = one.first_line - ends.get(one.rank, 0) <= _MOST_AFTER
        ends[one.rank] = one.last_line
        if before is None or not (one.thread and not before.thread and near):
            last[one.rank] = one
    labelled = [one for rank, one in last.items() if rank is not None]
    return labelled or list(last.values())


def _of_tasks(own: list[Traceback], parts: list[Stream]) -> list[Traceback]:
    """Return the tracebacks right before srun's first line on the last step that failed.

    Other tasks may raise later, as they wait in vain for the one that failed. Those at the end if
    the program wrote more between."""
    lines = [line for part in parts for line in part.lines]
    seen: set[str] = set()
    first = 0
    for number, match in reversed([(one.number, _TASK.match(one.text)) for one in lines]):
        if match is not None and match["tasks"] in seen:
            own = [one for one in own if one.first_line > number] or own
            break  # A step names a task once: this line is another step's.
        if match is not None:
            seen.add(match["tasks"])
            first = number
    burst = _last_burst([one for one in own if one.last_line < first])
    if not burst or all(one.first_line < first for one in own):
        return _last_burst(own)
    end = max(one.last_line for one in burst)
    raised = {at for one in own for at in range(one.first_line, one.last_line + 1)}
    others = [one for one in lines if one.number > end and one.number not in raised]
    between = [one for one in others if one.text.strip() and not one.text.startswith(_OF_SLURM)]
    return burst if len(between) <= _MOST_AFTER else _last_burst(own)


def _last_burst(found: list[Traceback]) -> list[Traceback]:
    """Return the tracebacks at the end with nothing between them: of several ranks at once."""
    burst: list[Traceback] = []
    for one in sorted(found, key=lambda one: one.last_line, reverse=True):
        if burst and burst[-1].first_line - one.last_line > 2:
            break
        burst.append(one)
    return burst


def _of_root(own: list[Traceback], root: RootCause, parts: list[Stream]) -> Traceback | None:
    """Return the traceback of the rank in torchrun's table."""
    theirs = [one for one in own if one.rank == root.rank]
    if not theirs:
        label = re.compile(rf"[A-Za-z_]{root.local_rank}$")
        same = [one for one in parts if one.rank is None and label.search(one.label)]
        theirs = [replace(one, rank=root.rank) for one in _tracebacks(same)]
    if theirs:
        return replace(max(theirs, key=lambda one: one.last_line), root=root)
    if root.raised:
        printed = [one for one in own if one.message == root.raised[0].message]
        if not printed:
            return Traceback(root.raised, root.rank, 0, 0, root=root)
        return replace(printed[-1], raised=root.raised, rank=root.rank, root=root)
    unknown = [one for one in own if one.rank is None]
    if root.exit_code is not None and root.exit_code < 0:
        unknown = [one for one in unknown if one.type.startswith("Fatal Python")]
    burst = _last_burst(unknown)
    if not burst:
        return None
    first = min(burst, key=lambda one: (_is_consequence(one), one.first_line))
    return replace(first, rank=root.rank if len(burst) == 1 else None, root=root)


def _bare(found: list[Traceback], root: RootCause) -> Traceback | None:
    """Return the launcher's own traceback with its table: the rank printed none."""
    launchers = [one for one in found if _launchers(one)]
    return replace(launchers[-1], rank=root.rank, root=root) if launchers else None


def _first_root(parts: list[Stream]) -> RootCause | None:
    """Return the last table. With several launchers, that of the one whose table comes first."""
    found: list[tuple[int, RootCause]] = []
    for part in parts:
        at = [index for index, line in enumerate(part.lines) if line.text == _ROOT]
        root = _root(part.lines[at[-1] + 1 : at[-1] + _ROOT_LINES]) if at else None
        if root is not None:
            found.append((part.lines[at[-1]].number, root))
    return min(found, key=lambda one: one[0])[1] if found else None


def _root(lines: list[Line]) -> RootCause | None:
    entries: dict[str, str] = {}
    record: list[Line] = []
    for line in lines:
        match = _ENTRY.match(line.text)
        if line.text.startswith(("=====", "-----")):
            break
        if match and not record:
            entries[match[1]] = match[2]
        if "traceback" in entries:
            text = match[2] if match and not record else line.text[2:]
            record.append(Line(line.number, text))
    rank = _RANK.match(entries.get("rank", ""))
    if rank is None:
        return None
    code = _CODE.match(entries.get("exitcode", ""))
    raised = chains(record)
    return RootCause(
        rank=int(rank[1]),
        local_rank=int(rank[2]),
        exit_code=int(code[1]) if code else None,
        pid=int(code[2]) if code else None,
        host=entries.get("host", ""),
        time=entries.get("time", ""),
        error_file=entries.get("error_file", "").replace("<N/A>", ""),
        raised=raised[-1].raised if raised else (),
    )
