"""`tk interrupt`: pauses a program, or the ranks that a selection names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.interrupt import interrupt
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.ranks.roster import Roster, RosterEntry
from tunnelkit.debug.ranks.sample import RankState
from tunnelkit.debug.ranks.selection import parse_selection
from tunnelkit.debug.ranks.text_errors import SelectionError
from tunnelkit.errors import DebugError
from tunnelkit.session.handlers.ranks import roots_of
from tunnelkit.session.runtime.control_answers import InterruptAnswer
from tunnelkit.session.runtime.control_calls import LoopInterrupt
from tunnelkit.session.session import Session

_HINT = "press F5 or open `{}` first; a process that runs without a debugger: tk attach"


async def interrupt_ranks(
    session: Session, request: LoopInterrupt, classes: Mapping[str, tuple[int, ...]]
) -> InterruptAnswer:
    """Pause what editors and consoles debug, or the selected ranks of it.

    classes: of the last list of ranks, for `@B`. Raises DebugError if nothing can be paused,
    SelectionError.
    """
    loop = _loop_of(session, request.loop)
    if request.selection is None:
        targets = [one for one in _targets(loop) if _has_client(one)]
        why = "no editor debugs the program, and no console, so nothing can pause it"
        if not targets:
            raise DebugError(why, hint=_HINT.format(_console_of(session, loop)))
    else:
        ranks = _ranks(session, loop)
        targets = [ranks[one] for one in chosen_ranks(request.selection, _roster(ranks, classes))]
        if not any(_has_client(one) or one.over for one in targets):
            who = targets[0].who.name if len(targets) == 1 else f"any of the {len(targets)} ranks"
            why = f"no editor debugs {who}, and no console, so nothing can pause it"
            home = next(one for one in _joined(session, loop) if targets[0] in _targets(one))
            raise DebugError(why, hint=_HINT.format(_console_of(session, home)))
    roots = [one["remote"] for one in roots_of(session)]
    return {"loop": loop.id, "processes": await interrupt(targets, roots)}


def chosen_ranks(selection: str, roster: Roster) -> tuple[int, ...]:
    """Return the selected ranks. Raises SelectionError, whose message has the column."""
    try:
        return parse_selection(selection).resolve(roster)
    except SelectionError as error:
        # A command gets the message alone.
        raise SelectionError(error.one_line()) from None


def _loop_of(session: Session, wanted: int | None) -> DebugLoop:
    """Return a loop by its id, else the newest with an editor or a console. Raises DebugError."""
    if wanted is None:
        loops = [one.loop for one in session.loops.all()]
        used = [one.id for one in loops if any(map(_has_client, _targets(one)))]
        wanted = max(used, default=None)
    return session.loops.get(wanted).loop


def _targets(loop: DebugLoop) -> Sequence[DebugTarget]:
    run = loop.first()
    return run.targets if run is not None else ()


def _has_client(target: DebugTarget) -> bool:
    return target.is_debugged or (target.watched and not target.over)


def _ranks(session: Session, loop: DebugLoop) -> dict[int, DebugTarget]:
    """The ranks of a loop, and those that were attached to. Raises DebugError if there are none."""
    found = {
        one.who.rank: one
        for each in _joined(session, loop)
        for one in _targets(each)
        if one.who.rank is not None
    }
    if not found:
        raise DebugError("the loop's program has no ranks", hint="without a rank: tk interrupt")
    return found


def _joined(session: Session, loop: DebugLoop) -> Sequence[DebugLoop]:
    """The attachments, and a loop with ranks."""
    attached = [one for one in session.loops.attachments() if one is not loop]
    return [*attached, loop] if loop.ranked or any(map(_is_rank, _targets(loop))) else attached


def _console_of(session: Session, loop: DebugLoop) -> str:
    """The command that opens a console on the ranks of a loop, or on all attached ones."""
    front = session.loops.get().loop
    attached = session.loops.attachments()
    together = front in attached and loop in attached and any(map(_is_rank, _targets(front)))
    return "tk console" if front is loop or together else f"tk console --loop {loop.id}"


def _is_rank(target: DebugTarget) -> bool:
    return target.who.rank is not None


def _roster(ranks: Mapping[int, DebugTarget], classes: Mapping[str, tuple[int, ...]]) -> Roster:
    return Roster(
        tuple(
            RosterEntry(rank, one.who.node, one.who.local_rank, _state(one))
            for rank, one in ranks.items()
        ),
        classes,
    )


def _state(target: DebugTarget) -> RankState:
    if target.over:
        return RankState.ENDED
    if target.is_stopped:
        return RankState.STOPPED
    return RankState.RUNNING if target.attached else RankState.WAITING
