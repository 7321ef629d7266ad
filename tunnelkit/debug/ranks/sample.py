"""One rank at one time: its main thread's frames, its process in /proc, its collectives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RankState(Enum):
    """The state of a rank when it was asked. The values are for `--json`."""

    #: It answered while its program runs.
    RUNNING = "running"
    #: The debugger holds it at a breakpoint, a step, a pause or an exception.
    STOPPED = "stopped"
    #: It has dialled in, and no editor has let its program begin.
    WAITING = "waiting"
    #: It did not answer in time; `ProcessState` may tell why.
    SILENT = "silent"
    #: Its process has ended.
    ENDED = "ended"
    #: It runs without a debugger, and is seen from outside alone.
    UNDEBUGGED = "undebugged"


@dataclass(frozen=True)
class StackFrame:
    """One Python frame. file: the path on the node. line: counted from 1."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class GroupProgress:
    """One process group of torch.distributed in one rank.

    name: as torch has it. ranks: its members, by global rank; () for all. sequence: the number of
    collectives that this rank has begun in it. operation: the newest of them, `all_reduce`; "" if
    the flight recorder has none.
    """

    name: str
    ranks: tuple[int, ...]
    sequence: int
    operation: str = ""


@dataclass(frozen=True)
class ProcessState:
    """A process as /proc describes it (proc(5)).

    letter: R, S, D, T, Z ... wchan: the kernel function that it waits in, "" if unknown. cpu_s: CPU
    of its main thread so far. holds_gil: its main thread holds the interpreter's lock.
    """

    letter: str
    wchan: str = ""
    cpu_s: float = 0.0
    holds_gil: bool = False


@dataclass(frozen=True)
class Failure:
    """An uncaught exception that the debugger keeps a rank at.

    type: the name of its class. text: its message, cut. age_s: since it was raised.
    """

    type: str
    text: str = ""
    age_s: float = 0.0

    @property
    def summary(self) -> str:
        """`ValueError: bad rank 2`, with the first line of the text."""
        lines = self.text.strip().splitlines()
        return ": ".join(filter(None, (self.type, lines[0] if lines else "")))


@dataclass(frozen=True)
class RankSample:
    """One rank at one time.

    frames: of the main thread, outermost first, without the debugger's and the launcher's; () if it
    did not answer. instruction: the offset within the innermost frame's code, which tells a loop on
    one line from a wait. cpu_s: CPU of the main thread so far; None if unknown. process: only asked
    for where the rank is silent or has no debugger. local_rank: its number on its node. command:
    its command line, only of a rank without a debugger. failure: of one that is kept at an uncaught
    exception; its frames are those of the exception.
    """

    rank: int
    node: str
    pid: int
    state: RankState
    frames: tuple[StackFrame, ...] = ()
    instruction: int = -1
    cpu_s: float | None = None
    groups: tuple[GroupProgress, ...] = ()
    process: ProcessState | None = None
    local_rank: int = 0
    command: str = ""
    failure: Failure | None = None
