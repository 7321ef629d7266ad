"""Stacks of many ranks: their normal form, classes of equal ones, and who moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from tunnelkit.debug.ranks.frames import Project
from tunnelkit.debug.ranks.sample import RankSample, RankState, StackFrame

#: CPU over time between two samples: from here on the main thread computes or polls. A wait costs
#: 3 % of a CPU at most; where ranks share CPUs, each has only a part of one.
_BUSY_SHARE = 0.1


def normal_form(frames: Sequence[StackFrame], roots: Sequence[str]) -> tuple[StackFrame, ...]:
    """The part of a stack by which ranks are compared.

    The project's own frames, with lines; then the first library call below the innermost of them,
    and the collective of torch.distributed that the stack ends in, both by function (line 0).
    Decorators' wrappers don't count as the first call. If no frame is the project's: the innermost
    three, by function. frames: outermost first. roots: the project's directories on the node.
    """
    return Project(roots).normal_form(frames)


class Activity(Enum):
    """The state of a class of ranks, judged by two samples. The values are for `--json`."""

    #: Both samples are equal, and the main thread used next to no CPU.
    WAITS = "waits"
    #: Both samples are equal, and the main thread used a CPU meanwhile.
    SPINS = "spins"
    #: Stack or instruction differ.
    MOVES = "moves"
    #: The debugger holds it.
    STOPPED = "stopped"
    #: The debugger keeps it at an uncaught exception.
    FAILED = "failed"
    #: It waits for a debugger.
    WAITING = "waiting"
    #: It did not answer and runs: native code that holds the GIL.
    BUSY_NATIVE = "busy-native"
    #: It did not answer and waits in the kernel, where no signal reaches it (state D).
    BLOCKED = "blocked"
    #: It did not answer and sleeps (state S): native code may hold the GIL.
    ASLEEP = "asleep"
    #: It has no debugger and sleeps (state S).
    SLEEPS = "sleeps"
    #: A signal or a tracer has stopped it (state T).
    SIGNAL_STOPPED = "signal-stopped"
    #: Its process has ended.
    ENDED = "ended"
    #: One sample only, or the CPU is unknown, or it did not answer and /proc tells no reason.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class StackClass:
    """Ranks with the same normal form, state and activity.

    name: A, B, ... Z, AA, ... by the lowest rank. ranks: ascending. nodes: sorted. form: as
    `normal_form` returns it. sample: the newest of the lowest rank, with its whole stack.
    cpu_share: of one CPU between the samples, mean over the ranks; None if unknown.
    """

    name: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    form: tuple[StackFrame, ...]
    sample: RankSample
    state: RankState
    activity: Activity
    cpu_share: float | None = None


def classify(
    first: Sequence[RankSample],
    second: Sequence[RankSample] | None,
    roots: Sequence[str],
    seconds: float = 1.0,
) -> list[StackClass]:
    """Classes of ranks, by their lowest rank. Each rank is in exactly one.

    first, second: samples in any order, `seconds` apart; the newest of a rank is what counts.
    Ranks at the same place are in different classes if their activities differ: the one rank that
    computes where 63 wait is what the user of a hanging job looks for, and the stacks of those who
    call one function of a large library are equal. A place has at most four classes by that.
    Failures are compared by the type of the exception, not by its text.
    """
    project = Project(roots)
    before = {one.rank: one for one in first}
    newest = before | {one.rank: one for one in second or ()}
    again = {one.rank for one in second or ()}
    members: dict[_Key, list[tuple[RankSample, float | None]]] = {}
    for rank in sorted(newest):
        now = newest[rank]
        form = project.normal_form(now.frames)
        then = before.get(rank) if rank in again else None
        share = None if then is None else _cpu_share(then, now, seconds)
        activity = _activity(project, then, now, form, share)
        why = now.process if now.state in _FROM_OUTSIDE else None
        key = (
            *(form, now.state, activity),
            *((why.letter, why.wchan) if why else ("", "")),
            now.failure.type if now.failure else "",
        )
        members.setdefault(key, []).append((now, share))
    return [
        _stack_class(class_name(at), key, found) for at, (key, found) in enumerate(members.items())
    ]


_Key = tuple[tuple[StackFrame, ...], RankState, Activity, str, str, str]


def _stack_class(
    name: str, key: _Key, found: Sequence[tuple[RankSample, float | None]]
) -> StackClass:
    form, state, activity, *_ = key
    shares = [share for _, share in found if share is not None]
    return StackClass(
        name=name,
        ranks=tuple(sample.rank for sample, _ in found),
        nodes=tuple(sorted({sample.node for sample, _ in found})),
        form=form,
        sample=found[0][0],
        state=state,
        activity=activity,
        cpu_share=sum(shares) / len(shares) if shares else None,
    )


def class_name(index: int) -> str:
    """The name of a class: A for 0, Z for 25, AA for 26."""
    name = ""
    index += 1
    while index > 0:
        index, letter = divmod(index - 1, 26)
        name = chr(ord("A") + letter) + name
    return name


_BY_STATE = {
    RankState.STOPPED: Activity.STOPPED,
    RankState.WAITING: Activity.WAITING,
    RankState.ENDED: Activity.ENDED,
}
_BY_LETTER = {
    "R": Activity.BUSY_NATIVE,
    "D": Activity.BLOCKED,
    "S": Activity.ASLEEP,
    "T": Activity.SIGNAL_STOPPED,
    "t": Activity.SIGNAL_STOPPED,
    "Z": Activity.ENDED,
    "X": Activity.ENDED,
}


#: States of ranks that /proc describes.
_FROM_OUTSIDE = frozenset({RankState.SILENT, RankState.UNDEBUGGED})


def _activity(
    project: Project,
    then: RankSample | None,
    now: RankSample,
    form: tuple[StackFrame, ...],
    share: float | None,
) -> Activity:
    """form: of `now`."""
    if now.state is RankState.SILENT:
        return _BY_LETTER.get(now.process.letter if now.process else "", Activity.UNKNOWN)
    if now.failure is not None:
        return Activity.FAILED
    if now.state in _BY_STATE:
        return _BY_STATE[now.state]
    if now.state is RankState.UNDEBUGGED:
        outside = _seen_from_outside(now, share)
        if outside not in (Activity.SLEEPS, Activity.SPINS, Activity.UNKNOWN) or not now.frames:
            return outside
    # A stack that was not seen is not an equal stack.
    if then is None or then.state is not now.state or not (then.frames and now.frames):
        return Activity.UNKNOWN
    if not _same_place(project, then, now, form):
        return Activity.MOVES
    if share is None:
        return Activity.UNKNOWN
    return Activity.SPINS if share >= _BUSY_SHARE else Activity.WAITS


def _seen_from_outside(now: RankSample, share: float | None) -> Activity:
    """The activity of a rank without a debugger: its state in /proc, and whether its CPU grows."""
    letter = now.process.letter if now.process else ""
    if letter in ("R", "S"):
        if share is not None and share >= _BUSY_SHARE:
            return Activity.SPINS
        return Activity.SLEEPS if letter == "S" else Activity.UNKNOWN
    return _BY_LETTER.get(letter, Activity.UNKNOWN)


def _same_place(
    project: Project, then: RankSample, now: RankSample, form: tuple[StackFrame, ...]
) -> bool:
    """Equal stacks; or the same collective of the same number, however its library polls."""
    # A loop is often at the same line again: it has begun more collectives meanwhile.
    if then.pid != now.pid or sequences(then) != sequences(now):
        return False
    if then.instruction == now.instruction and then.frames == now.frames:
        return True
    return (
        bool(now.groups)
        and bool(project.collective(now.frames))
        and project.normal_form(then.frames) == form
    )


def sequences(sample: RankSample) -> list[tuple[str, int]]:
    """Name and sequence number of each process group."""
    return [(group.name, group.sequence) for group in sample.groups]


def _cpu_share(then: RankSample, now: RankSample, seconds: float) -> float | None:
    """CPU of the main thread over the time; None if one of them is unknown."""
    if then.cpu_s is None or now.cpu_s is None or not seconds > 0:
        return None
    share = (now.cpu_s - then.cpu_s) / seconds
    return max(share, 0.0) if math.isfinite(share) else None


@dataclass(frozen=True)
class _Stay:
    """since_s: the first sample at this place. spins: None until there are two."""

    sample: RankSample
    time_s: float
    since_s: float
    spins: bool | None = None


class MovementHistory:
    """Since when each rank has stayed where it is, from repeated samples.

    It keeps one entry for a rank. A rank that was not sampled for a time is taken as unmoved if it
    is at the same place afterwards.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        """roots: the project's directories on the node."""
        self._project = Project(roots)
        self._stays: dict[int, _Stay] = {}

    def feed(self, time_s: float, samples: Iterable[RankSample]) -> None:
        """Take samples of `time_s`, by a clock of the caller's that does not go back."""
        for sample in samples:
            self._stays[sample.rank] = self._next(time_s, sample, self._stays.get(sample.rank))

    def since(self, rank: int) -> float | None:
        """The time of the first sample at the place where the rank still is; None if unknown.

        Its place: state, stack, instruction and sequence numbers, and whether it uses a CPU
        meanwhile. A rank that begins to compute within a native call has left its place.
        """
        stay = self._stays.get(rank)
        return stay.since_s if stay else None

    def _next(self, time_s: float, sample: RankSample, before: _Stay | None) -> _Stay:
        form = self._project.normal_form(sample.frames)
        if (
            before is None
            or before.sample.state is not sample.state
            or not _same_place(self._project, before.sample, sample, form)
        ):
            return _Stay(sample, time_s, time_s)
        share = _cpu_share(before.sample, sample, time_s - before.time_s)
        spins = before.spins if share is None else share >= _BUSY_SHARE
        same = before.spins in (None, spins)
        return _Stay(sample, time_s, before.since_s if same else before.time_s, spins)
