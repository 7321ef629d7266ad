"""`tk ranks`: where every rank is, of a loop or of a program without a debugger."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from weakref import WeakKeyDictionary

from tunnelkit.debug.generation import Generation
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.rank_looks import look
from tunnelkit.debug.ranks.absent import DialledIn, absent_ranks
from tunnelkit.debug.ranks.roster import Roster, RosterEntry
from tunnelkit.debug.ranks.sample import RankSample, RankState
from tunnelkit.debug.ranks.sample_json import from_json, to_json
from tunnelkit.debug.ranks.selection import parse_selection
from tunnelkit.debug.ranks.stacks import MovementHistory, classify
from tunnelkit.debug.ranks.text_errors import SelectionError
from tunnelkit.errors import ConnectionFailed, DebugError
from tunnelkit.session.debugging.py_spy import load_binary
from tunnelkit.session.handlers.native_stacks import NativeStacks
from tunnelkit.session.handlers.outside_ranks import OutsideRanks, find_outside
from tunnelkit.session.handlers.rank_states import states_of
from tunnelkit.session.runtime.control_answers import LookInfo, RanksAnswer, RootInfo
from tunnelkit.session.runtime.control_calls import Ranks
from tunnelkit.session.session import Session

_MOST_GAP_S = 60.0
#: The first question may have waited for silent ranks; the others answered it at once.
_LEAST_GAP_S = 0.25

#: Asks all ranks once.
Look = Callable[[], Awaitable[list[RankSample]]]
#: Names those that have not dialled in.
Absent = Callable[[], Sequence[int]]


@dataclass
class _Program:
    """The ranks to look at. history: since when each has not moved. native: for py-spy's stacks of
    the selected ranks."""

    look: Look
    history: MovementHistory
    command: str
    loop: int = 0
    generation: int = 0
    world_size: int = 0
    absent: Absent = tuple
    native: NativeStacks | None = None
    selection: str | None = None
    notes: list[str] = field(default_factory=list)


class RankLooks:
    """Looks at the ranks of a session's runs, and remembers since when they have not moved."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._histories: WeakKeyDictionary[Generation, MovementHistory] = WeakKeyDictionary()
        #: Of the last program without a debugger, by its run.
        self._outside: tuple[str, MovementHistory] | None = None
        self._last: RanksAnswer | None = None

    async def look(self, request: Ranks) -> RanksAnswer:
        """Ask all ranks where they are.

        Raises DebugError if no program has ranks, ConnectionFailed without a link.
        """
        roots = roots_of(self._session)
        program = await self._program(request, roots)
        if request.native is not None:
            binary = await asyncio.to_thread(load_binary, Path(request.native))
            program.native = NativeStacks(self._session, binary)
            program.selection = request.selection
        before = self._answers_before(program) if request.again else None
        looks = [await self._look(program)]
        if before is not None:
            looks.insert(0, before)
        elif request.gap_s > 0:
            gap_s = min(request.gap_s, _MOST_GAP_S) - looks[0]["took_s"]
            await asyncio.sleep(max(gap_s, _LEAST_GAP_S))
            looks.append(await self._look(program))
        if program.native is not None:
            program.notes += program.native.notes
        self._last = _answer(program, looks, roots)
        return self._last

    def _answers_before(self, program: _Program) -> LookInfo | None:
        """Return the last answers of the same run; None if there are none of the last minute."""
        last = self._last
        if last is None:
            return None
        same = (last["loop"], last["generation"], last["command"])
        look = last["looks"][-1]
        age_s = asyncio.get_running_loop().time() - look["time_s"]
        is_same = same == (program.loop, program.generation, program.command)
        return look if is_same and age_s < _MOST_GAP_S else None

    def classes(self) -> dict[str, tuple[int, ...]]:
        """Return the classes of the last list by name, as `tk ranks` has shown them: `@B`."""
        if self._last is None:
            return {}
        looks = [[from_json(one) for one in look["samples"]] for look in self._last["looks"]]
        gap_s = self._last["looks"][-1]["time_s"] - self._last["looks"][0]["time_s"]
        roots = [one["remote"] for one in self._last["roots"]]
        again = looks[-1] if len(looks) > 1 else None
        return {one.name: one.ranks for one in classify(looks[0], again, roots, gap_s)}

    async def _program(self, request: Ranks, roots: list[RootInfo]) -> _Program:
        """Return the loop's run; where there is none, the ranks that have no debugger."""
        try:
            loop = _loop_of(self._session, request.loop)
            run = _run_of(loop)
        except DebugError as error:
            found = None if request.loop is not None else await find_outside(self._session)
            if found is None:
                raise error from None
            return self._outside_program(found, roots)
        remotes = [one["remote"] for one in roots]
        return _Program(
            look=lambda: _ask(self._session, run),
            history=self._histories.setdefault(run, MovementHistory(remotes)),
            command=loop.info.get("shown") or shlex.join(loop.info.get("argv") or []),
            loop=loop.id,
            generation=run.number,
            world_size=run.world_size,
            absent=lambda: absent_of(loop, run),
        )

    def _outside_program(self, found: OutsideRanks, roots: list[RootInfo]) -> _Program:
        if self._outside is None or self._outside[0] != found.run:
            self._outside = found.run, MovementHistory([one["remote"] for one in roots])
        return _Program(
            look=found.look,
            history=self._outside[1],
            command=found.command,
            notes=[f"{node}: {why.one_line()}" for node, why in found.unreached.items()],
        )

    async def _look(self, program: _Program) -> LookInfo:
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        samples = await program.look()
        if program.native is not None:
            samples = await self._with_stacks(program.native, program.selection, samples)
        # A place that was not seen is no place to stay at.
        program.history.feed(begun_s, [one for one in samples if _is_seen(one)])
        return {
            "time_s": begun_s,
            "took_s": clock() - begun_s,
            "samples": [to_json(one) for one in samples],
        }

    async def _with_stacks(
        self, native: NativeStacks, selection: str | None, samples: list[RankSample]
    ) -> list[RankSample]:
        """Add py-spy's stacks to the selected ranks."""
        chosen = {one.rank for one in samples}
        if selection is not None:
            # What it refuses the command refuses, too.
            with contextlib.suppress(SelectionError):
                roster = Roster(
                    tuple(
                        RosterEntry(one.rank, one.node, one.local_rank, one.state)
                        for one in samples
                    ),
                    self.classes(),
                )
                chosen = set(parse_selection(selection).resolve(roster))
        found = await native.add([one for one in samples if one.rank in chosen])
        by_rank = {one.rank: one for one in found}
        return [by_rank.get(one.rank, one) for one in samples]


def _is_seen(sample: RankSample) -> bool:
    return bool(sample.frames) or sample.state is not RankState.UNDEBUGGED


def _answer(program: _Program, looks: list[LookInfo], roots: list[RootInfo]) -> RanksAnswer:
    last = looks[-1]
    since = ((one["rank"], program.history.since(one["rank"])) for one in last["samples"])
    still_s = {str(rank): last["time_s"] - at for rank, at in since if at is not None}
    for one in last["samples"]:
        if (failure := one["failure"]) is not None:
            still_s[str(one["rank"])] = failure["age_s"]
    return {
        "loop": program.loop,
        "command": program.command,
        "generation": program.generation,
        "world_size": program.world_size,
        "absent": list(program.absent()),
        "looks": looks,
        "roots": roots,
        "still_s": still_s,
        "notes": program.notes,
    }


def roots_of(session: Session) -> list[RootInfo]:
    """Return the mirrored directories."""
    mirrors = session.files.mirrors
    return [
        {"local": one.local_root, "remote": one.remote_root}
        for one in (mirrors.all if mirrors is not None else ())
        if one.remote_root
    ]


def _loop_of(session: Session, wanted: int | None) -> DebugLoop:
    """Return a loop; None: the newest. Attachments are looked at together. Raises DebugError."""
    attached = {one.id for one in session.loops.attachments()}
    loop = session.loops.get(wanted).loop
    if wanted is None and loop.id in attached:
        raise DebugError(
            "no debug loop is running", hint="start one in a terminal: tk loop python FILE"
        )
    return loop


def absent_of(loop: DebugLoop, run: Generation) -> Sequence[int]:
    """Return the ranks to debug that have not dialled in.

    An attachment, and a program by itself, wait for no others. Of a run that a killed session had,
    those that are not there may have ended before.
    """
    if not loop.ranked or run.number <= loop.adopted_run:
        return ()
    ranks = loop.info.get("ranks")
    seen = (
        DialledIn(one.who.rank, one.who.world_size, over=one.over or one.asked is None)
        for one in run.targets
        if one.armed and one.who.rank is not None
    )
    return absent_ranks(seen, ranks["only"] if ranks else None)


def _run_of(loop: DebugLoop) -> Generation:
    run = loop.first()
    if run is None or not run.targets or not any(one.armed for one in run.targets):
        raise DebugError(
            "no process of the loop has dialled in",
            cause=f"the loop's state: {loop.state}" if loop.debugs else "it is no Python program",
            hint="see `tk status` and `tk logs`",
        )
    return run


async def _ask(session: Session, run: Generation) -> list[RankSample]:
    """Ask the ranks of a loop; /proc describes those that do not answer."""
    samples = await look(run.targets)
    if any(one.state is RankState.SILENT for one in samples):
        _check_link(session)
        samples = await _with_processes(session, samples)
    return samples


def _check_link(session: Session) -> None:
    """A rank that can't be reached is not silent. Raises ConnectionFailed."""
    if not session.agent().is_up:
        raise ConnectionFailed(
            "the ranks can't be asked: the connection to the node is lost at the moment",
            hint="tk reconnects by itself; `tk status` shows how it goes",
        )


async def _with_processes(session: Session, samples: Iterable[RankSample]) -> list[RankSample]:
    """Add what /proc tells of ranks that did not answer."""
    samples = list(samples)
    silent = [(one.node, one.pid) for one in samples if one.state is RankState.SILENT]
    states = await states_of(session, silent)
    return [
        replace(one, process=states.found.get((one.node, one.pid)))
        if one.state is RankState.SILENT
        else one
        for one in samples
    ]
