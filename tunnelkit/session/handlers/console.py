"""A console over the ranks of a loop: its stream, joined with the debuggees' connections."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine, Mapping

from tunnelkit.debug.dap.attach_arguments import correct_attach
from tunnelkit.debug.dap.messages import Message, dump, objects, parse, section, text, whole
from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.generation import Generation
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.ranks.console_messages import (
    COMMANDS,
    AnswerMessage,
    EventMessage,
    RaisedInfo,
    RaisedMessage,
    RosterMessage,
    ToConsole,
)
from tunnelkit.errors import DebugError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.dap_framing import DapError, DapReader, frame
from tunnelkit.mux.tasks import cancel_all, start
from tunnelkit.session.debugging.attached_ranks import AttachedRanks
from tunnelkit.session.debugging.console_rank import JOIN_S, ConsoleRank
from tunnelkit.session.handlers.ranks import absent_of
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.session import Session

#: A console that is this far behind gets no more output.
_BEHIND_BYTES = 8 << 20
#: Of one console at a time: 1,024 ranks, some requests each.
_MOST_ASKED = 16_384
#: Between two rosters: each has all ranks, and each rank that comes or begins changes it.
_ROSTER_GAP_S = 0.2


def _expected(loop: DebugLoop | AttachedRanks, run: Generation | AttachedRanks | None) -> int:
    if isinstance(run, AttachedRanks):
        # Others have no debugger.
        return len({one.who.rank for one in run.targets if not one.over})
    ranks = loop.info.get("ranks")
    only = ranks["only"] if ranks else None
    size = run.world_size if run is not None else 0
    return size if only is None else sum(rank < size for rank in only)


def _absent(loop: DebugLoop | AttachedRanks, run: Generation | AttachedRanks | None) -> list[int]:
    if run is None or isinstance(run, AttachedRanks) or isinstance(loop, AttachedRanks):
        return []
    return list(absent_of(loop, run))


class ConsoleServer:
    """One console. `run` serves it until it hangs up.

    entry: ranks that wait for a debugger begin, and stop at their first line.
    """

    def __init__(
        self,
        session: Session,
        loop: DebugLoop | AttachedRanks,
        channel: Channel,
        *,
        entry: bool = False,
    ) -> None:
        self.entry = entry
        self._session = session
        self._loop = loop
        self._channel = channel
        self._run: Generation | AttachedRanks | None = None
        self._ranks: dict[int, ConsoleRank] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = 0
        self._told: RosterMessage | None = None
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Serve the console."""
        following = asyncio.create_task(self._follow())
        telling = asyncio.create_task(self._tell_rosters())
        linked = asyncio.create_task(self._follow_link())
        try:
            frames = DapReader()
            while data := await self._channel.read():
                for body in frames.feed(data):
                    self._take(parse(body))
        except DapError as error:
            self._channel.close({"error": str(error)})
        finally:
            await cancel_all(following, telling, linked, *self._tasks)
            for rank in self._ranks.values():
                rank.close()
            if not self._channel.is_over:
                self._channel.close({})

    # -- the console's messages ----------------------------------------------

    def _take(self, message: Message) -> None:
        if message.get("type") == "ask":
            for one in objects(message.get("asks")):
                self._ask(one)
        elif message.get("type") == "release" and isinstance(message.get("ranks"), list):
            for number in {whole(rank) for rank in _list_of(message.get("ranks"))}:
                self._spawn(self._release(whole(message.get("id")) or 0, number or 0))

    def _ask(self, one: Message) -> None:
        number, rank = whole(one.get("id")) or 0, whole(one.get("rank")) or 0
        command, arguments = text(one.get("command")), section(one, "arguments")
        if command not in COMMANDS:
            self._refuse(number, rank, f"a console can't send {command!r}")
        elif self._asked >= _MOST_ASKED:
            self._refuse(number, rank, "too many requests have no answer yet")
        else:
            # The request is written before the next one is looked at.
            self._asked += 1
            self._spawn(self._answer(number, rank, command, arguments))

    async def _answer(self, number: int, rank: int, command: str, arguments: Message) -> None:
        try:
            known = self._ranks.get(rank)
            if known is None:
                self._refuse(number, rank, "there is no such rank")
                return
            response = await known.ask(command, arguments)
            self._send(_answer(number, rank, response))
        except DebugError as error:
            self._refuse(number, rank, error.one_line())
        except ConnectionError as error:
            self._refuse(number, rank, str(error), lost=True)
        finally:
            self._asked -= 1

    async def _release(self, number: int, rank: int) -> None:
        known = self._ranks.get(rank)
        if known is None or known.state != "waiting":
            self._refuse(number, rank, "it does not wait for a debugger")
            return
        try:
            await known.begin()
        except (DebugError, ConnectionError) as error:
            self._refuse(number, rank, str(error), lost=isinstance(error, ConnectionError))
            return
        self._send(_answer(number, rank, {"success": True}))
        self._changed.set()

    def _refuse(self, number: int, rank: int, why: str, *, lost: bool = False) -> None:
        answer = _answer(number, rank, {"message": why})
        if lost:
            answer["lost"] = True
        self._send(answer)

    # -- the ranks ------------------------------------------------------------

    async def _follow(self) -> None:
        """Take every rank of the run in front, and of those that come after it."""
        while not self._channel.is_over:
            changed = self._loop.changed
            await self._take_ranks()
            self._changed.set()
            await changed.wait()

    async def _tell_rosters(self) -> None:
        while not self._channel.is_over:
            await self._changed.wait()
            self._changed.clear()
            self._tell_roster()
            await asyncio.sleep(_ROSTER_GAP_S)

    async def _follow_link(self) -> None:
        """Say when the link to the cluster is cut, and when it is back."""
        last = True
        while not self._channel.is_over:
            up = self._session.states.state is not SessionState.RECONNECTING
            if up is not last:
                last = up
                self._send({"type": "link", "up": up})
            await self._session.states.wait_change()

    async def _take_ranks(self) -> None:
        run = self._loop.first()
        if run is not self._run:
            for rank in self._ranks.values():
                rank.close()
            self._run, self._ranks = run, {}
        newest = {one.who.rank or 0: one for one in (run.targets if run is not None else ())}
        coming: list[ConsoleRank] = []
        for number, target in newest.items():
            known = self._ranks.get(number)
            if target.asked is None or (known is not None and known.shared is target.asked):
                continue
            if known is not None:
                known.close()
            self._ranks[number] = rank = ConsoleRank(self, number, target, target.asked)
            coming.append(rank)
        if coming:
            for rank in coming:
                rank.joining = start(self._tasks, self._join(rank))
            await asyncio.wait([rank.settled for rank in coming], timeout=JOIN_S)
            for rank in coming:
                rank.listed = True

    async def _join(self, rank: ConsoleRank) -> None:
        """Join a rank, beside the others: one may hang."""
        await rank.join()
        # Those that came together, and did not hang, share one roster.
        if rank.listed:
            self._changed.set()

    @property
    def keeps_failures(self) -> bool:
        """True: uncaught exceptions stop a rank (--post-mortem)."""
        return self._loop.keeps_failures

    def attach_arguments(self, *, entry: bool = False) -> Mapping[str, object]:
        """Return the arguments of `attach` for ranks that no editor has.

        entry: to stop at the first line of a program that has not begun.
        """
        place = self._session.files.place()
        arguments: Message = {"justMyCode": True}
        if entry:
            arguments["stopOnEntry"] = True
        attach: Message = {"command": "attach", "arguments": arguments}
        corrected, _ = correct_attach(attach, place.mirror if place is not None else None)
        return section(corrected, "arguments")

    async def open_in_editor(self, target: DebugTarget) -> Message:
        """Open a rank in the editor that is there; return that as a response."""
        each = self._loop
        for loop in each.attachments() if isinstance(each, AttachedRanks) else [each]:
            run = loop.first()
            if run is not None and target in run.targets and not target.over:
                return {"success": True, "body": await loop.open_in_editor(run, target)}
        raise ConnectionError("it has ended")

    def _tell_roster(self) -> None:
        """Send all ranks, if something about them has changed."""
        info = self._loop.info
        run = self._run
        roster: RosterMessage = {
            "type": "roster",
            "loop": self._loop.id,
            "command": info.get("shown") or shlex.join(info.get("argv") or []),
            "generation": run.number if run is not None else 0,
            "world_size": run.world_size if run is not None else 0,
            "expected": _expected(self._loop, run),
            "absent": _absent(self._loop, run),
            "ranked": self._loop.ranked,
            "ranks": [rank.entry() for _, rank in sorted(self._ranks.items()) if rank.listed],
        }
        if roster != self._told:
            self._told = roster
            self._send(roster)

    def event(self, rank: int, event: Message, *, owes: bool) -> None:
        """Send an event of a rank. owes: it owes this console an answer."""
        name = text(event.get("event"))
        if name == "output" and (not owes or self._channel.queued_bytes > _BEHIND_BYTES):
            return
        message: EventMessage = {
            "type": "event",
            "rank": rank,
            "event": name,
            "body": section(event, "body"),
        }
        self._send(message)

    def raised(self, rank: int, raised: RaisedInfo) -> None:
        """Send the exception that a rank has stopped at."""
        message: RaisedMessage = {"type": "raised", "rank": rank, "raised": raised}
        self._send(message)

    def _send(self, message: ToConsole) -> None:
        if not self._channel.is_over:
            self._channel.write_soon(frame(dump(message)))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        start(self._tasks, work)


def _answer(number: int, rank: int, response: Message) -> AnswerMessage:
    """Return a rank's response as the answer to a request of the console."""
    return {
        "type": "answer",
        "id": number,
        "rank": rank,
        "success": response.get("success") is True,
        "message": text(response.get("message")),
        "body": section(response, "body"),
    }


def _list_of(value: object) -> list[object]:
    """Return a list; [] for anything else."""
    return value if isinstance(value, list) else []
