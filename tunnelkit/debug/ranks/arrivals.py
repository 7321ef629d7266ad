"""Ranks that have not reached a collective in which others wait.

A rank is accused only if two samples agree, nothing of it has moved between them but its stack, and
another rank provably waits in that very collective. In doubt nobody is. The sequence numbers must
count collectives only (gloo's `_get_sequence_number_for_group` counts sends and receives too: the
flight recorder's `collective_seq_id` does not); a group in which one is seen is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tunnelkit.debug.ranks.frames import Project, is_point_to_point, operation_family
from tunnelkit.debug.ranks.sample import GroupProgress, RankSample, RankState
from tunnelkit.debug.ranks.stacks import sequences


@dataclass(frozen=True)
class LateRank:
    """A rank that has not begun a collective. behind: the collectives that it lacks, at least 1.

    state: RUNNING, or STOPPED if the debugger is the reason.
    """

    rank: int
    behind: int
    state: RankState = RankState.RUNNING


@dataclass(frozen=True)
class Arrival:
    """A collective that some members of a group wait in, and others have not begun.

    group: its name as torch has it. members: its ranks, sampled or not. operation:
    `all_reduce`. sequence: its number in the group. arrived: have begun it or a later one. waiting:
    those of them that were seen in it. late: have begun fewer collectives than all other members,
    and are outside of torch.distributed. also_behind: have not begun it either, but may themselves
    be waiting for the late ones. silent: did not answer. ended: their processes have ended. absent:
    have not dialled in. Ranks are ascending.
    """

    group: str
    members: tuple[int, ...]
    operation: str
    sequence: int
    arrived: tuple[int, ...]
    waiting: tuple[int, ...]
    late: tuple[LateRank, ...]
    also_behind: tuple[LateRank, ...]
    silent: tuple[int, ...]
    ended: tuple[int, ...]
    absent: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Seen:
    """A rank that answered both times as the same process.

    still: it began no collective of any group meanwhile. stuck: nor has its program moved.
    collective: the one that it was in both times, "" if none. away: it was outside of
    torch.distributed both times.
    """

    now: RankSample
    still: bool
    stuck: bool
    collective: str
    away: bool
    point_to_point: bool


@dataclass
class _Group:
    """One process group. progress: of the ranks in _Seen that have it, the newest.

    gone: members that did not answer or have ended. absent: members that have not dialled in. fit:
    its numbers count collectives only.
    """

    name: str
    members: tuple[int, ...]
    progress: dict[int, GroupProgress]
    gone: list[RankSample]
    absent: tuple[int, ...] = ()
    lowest: int = 0
    highest: int = 0
    fit: bool = True

    @property
    def is_whole(self) -> bool:
        """True if each member answered."""
        return not self.gone and not self.absent


def arrivals(
    first: Sequence[RankSample],
    second: Sequence[RankSample],
    roots: Sequence[str] = (),
    absent: Sequence[int] = (),
) -> list[Arrival]:
    """The collectives that ranks wait in while others have not come, by their lowest late rank.

    first, second: samples of the same ranks about a second apart. roots: the project's directories
    on the node; with them fewer ranks escape the finding. absent: ranks that have not dialled in.
    Nothing is reported if nobody waits in a collective, if all members have begun it, or if the
    samples don't agree.
    """
    project = Project(roots)
    before = {one.rank: one for one in first}
    newest = {one.rank: one for one in second}
    seen = {
        rank: _compare(project, before[rank], newest[rank])
        for rank in sorted(newest)
        if rank in before and _comparable(before[rank], newest[rank])
    }
    groups = _groups(seen, newest, absent)
    waits = _waits(seen, groups)
    found = [_arrival(seen, groups[at], waits[at]) for at in sorted(waits)]
    return sorted(filter(None, found), key=_lowest_late)


def _lowest_late(found: Arrival) -> tuple[bool, int]:
    """Those without a late rank come last."""
    return (not found.late, found.late[0].rank if found.late else 0)


def _comparable(then: RankSample, now: RankSample) -> bool:
    answered = (RankState.RUNNING, RankState.STOPPED)
    both = bool(then.frames and now.frames) and then.pid == now.pid
    return both and then.state in answered and now.state in answered


def _compare(project: Project, then: RankSample, now: RankSample) -> _Seen:
    name = project.collective(now.frames)
    waits = then.state is now.state is RankState.RUNNING and name == project.collective(then.frames)
    return _Seen(
        now=now,
        still=sequences(then) == sequences(now),
        stuck=then.state is now.state is RankState.RUNNING
        and (then.frames, then.instruction) == (now.frames, now.instruction),
        collective=name if waits else "",
        away=not (project.in_distributed(then.frames) or project.in_distributed(now.frames)),
        point_to_point=project.in_point_to_point(then.frames)
        or project.in_point_to_point(now.frames),
    )


def _groups(
    seen: Mapping[int, _Seen], newest: Mapping[int, RankSample], absent: Sequence[int]
) -> list[_Group]:
    """The groups by name and members: subgroups of different ranks may share a name."""
    everyone = tuple(sorted({*newest, *absent}))
    found: dict[tuple[str, tuple[int, ...]], dict[int, GroupProgress]] = {}
    for rank, one in seen.items():
        for group in one.now.groups:
            found.setdefault((group.name, group.ranks or everyone), {})[rank] = group
    gone = {
        rank: one
        for rank, one in newest.items()
        if one.state in (RankState.SILENT, RankState.ENDED)
    }
    return [
        _Group(
            name=name,
            members=tuple(sorted(set(members))),
            progress=progress,
            gone=[gone[rank] for rank in sorted(set(members) & gone.keys())],
            absent=tuple(sorted(set(members).intersection(absent))),
            lowest=min(one.sequence for one in progress.values()),
            highest=max(one.sequence for one in progress.values()),
            fit=not any(
                is_point_to_point(one.operation) or seen[rank].point_to_point
                for rank, one in progress.items()
            ),
        )
        for (name, members), progress in sorted(found.items())
    ]


def _waits(seen: Mapping[int, _Seen], groups: Sequence[_Group]) -> dict[int, list[int]]:
    """Index of a group -> the ranks that wait in their newest collective of it.

    A rank waits in one collective only, and its stack does not tell in which group. So it counts
    where one group alone explains it: its newest collective lacks a member, and the names agree.
    A stack that stands elsewhere, as in `Work.wait()`, counts if the flight recorder has the
    collective as unfinished, and the rank itself is late nowhere.
    """
    behind = {
        rank
        for group in groups
        for rank, progress in group.progress.items()
        if progress.sequence < group.highest
    }
    reasons: dict[int, list[int]] = {}
    for at, group in enumerate(groups):
        for rank, progress in group.progress.items():
            one = seen[rank]
            if (
                one.still
                and progress.sequence > 0
                and (not group.is_whole or progress.sequence > group.lowest)
                and _waits_in(one, progress.operation, late=rank in behind)
            ):
                reasons.setdefault(rank, []).append(at)
    found: dict[int, list[int]] = {}
    for rank, possible in sorted(reasons.items()):
        if len(possible) == 1 and groups[possible[0]].fit:
            found.setdefault(possible[0], []).append(rank)
    return found


def _waits_in(one: _Seen, unfinished: str, *, late: bool) -> bool:
    """unfinished: the group's newest operation, as the flight recorder has it; "" if unknown."""
    if one.collective:
        return _agree(unfinished, one.collective)
    return one.stuck and bool(unfinished) and not late


def _agree(operation: str, function: str) -> bool:
    """Tell whether a function may have begun an operation of the flight recorder ("": unknown)."""
    kinds = {operation_family(operation), operation_family(function)}
    # NCCL's barrier is an all_reduce.
    return "" in kinds or len(kinds) == 1 or kinds == {"barrier", "all_reduce"}


def _arrival(seen: Mapping[int, _Seen], group: _Group, waits: Sequence[int]) -> Arrival | None:
    """The newest collective of a group that a rank waits in; None if nobody is missed."""
    numbers = {rank: one.sequence for rank, one in sorted(group.progress.items())}
    sequence = max(numbers[rank] for rank in waits)
    waiting = tuple(rank for rank in waits if numbers[rank] == sequence)
    behind = [
        LateRank(rank, sequence - number, seen[rank].now.state)
        for rank, number in numbers.items()
        if number < sequence and seen[rank].still and seen[rank].away
    ]
    late = tuple(one for one in behind if numbers[one.rank] == group.lowest)
    if not late and group.is_whole:
        return None
    operations = (group.progress[rank].operation for rank in waiting)
    return Arrival(
        group=group.name,
        members=group.members,
        operation=next(filter(None, operations), seen[waiting[0]].collective),
        sequence=sequence,
        arrived=tuple(rank for rank, number in numbers.items() if number >= sequence),
        waiting=waiting,
        late=late,
        # They have begun a collective that the late ones have not: it may hold them.
        also_behind=tuple(one for one in behind if numbers[one.rank] > group.lowest),
        silent=tuple(one.rank for one in group.gone if one.state is RankState.SILENT),
        ended=tuple(one.rank for one in group.gone if one.state is RankState.ENDED),
        absent=group.absent,
    )


#: MPI's blocking functions: mpi4py has them with and without a capital.
_MPI_FUNCTION = re.compile(
    r"barrier|bcast|(all)?reduce|(all)?gatherv?|scatterv?|alltoall[vw]?|reduce_scatter|(ex)?scan"
    r"|s?send|recv|sendrecv|probe|wait(all)?"
)
#: mpi4py's calls are native: Python has only the program's line. A communicator or a request, by
#: its name, since `sock.recv` and `threading.Barrier` are common.
_MPI_CALL = re.compile(r"(?i:\b\w*(?:comm|req)\w*)\.([A-Za-z_]+)\s*\(")


@dataclass(frozen=True)
class BlockingCalls:
    """Ranks by the blocking call of MPI that they are at. It does not tell who is late.

    calls: (name, its ranks), by the lowest rank. none: the answering ranks at no such call.
    """

    calls: tuple[tuple[str, tuple[int, ...]], ...]
    none: tuple[int, ...]


def blocking_calls(
    samples: Sequence[RankSample], source: Callable[[str, int], str | None] | None = None
) -> BlockingCalls:
    """The ranks by the MPI call at their innermost frame: its function or its source line.

    source: the text of a line (from 1) of a file on the node, None if unknown. Without it only
    programs that wrap MPI in functions of the same names are recognized.
    """
    found: dict[str, list[int]] = {}
    for sample in sorted(samples, key=lambda one: one.rank):
        if sample.frames and sample.state is RankState.RUNNING:
            found.setdefault(_mpi_call(sample, source), []).append(sample.rank)
    none = tuple(found.pop("", ()))
    return BlockingCalls(tuple((name, tuple(ranks)) for name, ranks in found.items()), none)


def _mpi_call(sample: RankSample, source: Callable[[str, int], str | None] | None) -> str:
    frame = sample.frames[-1]
    if frame.function[:1].isupper() and _is_mpi(frame.function):
        return frame.function
    line = source(frame.file, frame.line) if source else None
    called = _MPI_CALL.findall((line or "").partition("#")[0])
    return next(filter(_is_mpi, called), "")


def _is_mpi(name: str) -> bool:
    return name[1:].islower() and _MPI_FUNCTION.fullmatch(name.lower()) is not None
