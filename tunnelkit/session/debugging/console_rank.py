"""One rank of a loop, as one console knows it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Protocol

from tunnelkit.debug.dap.messages import Message, objects, section, text
from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.pdb.paipdb_offer import offer_paipdb
from tunnelkit.debug.rank_looks import look
from tunnelkit.debug.ranks.console_messages import OPEN_EDITOR, RaisedInfo, RankEntry, State
from tunnelkit.debug.ranks.sample import RankState
from tunnelkit.debug.shared_debuggee import RaisedException, SharedDebuggee
from tunnelkit.errors import DebugError

_PATIENCE_S = 1.5
#: They need a debuggee that has been joined.
_SETTING = frozenset({"setBreakpoints", "setExceptionBreakpoints"})
#: Limit of the wait for a program that begins to reach its first line.
_ENTRY_S = 5.0
#: Limit of the wait of all ranks for one that has begun to answer.
JOIN_S = _PATIENCE_S + _ENTRY_S
_STATES: dict[RankState, State] = {
    RankState.WAITING: "waiting",
    RankState.STOPPED: "stopped",
    RankState.ENDED: "ended",
}


class RankConsole(Protocol):
    """The console of a rank (handlers/console.py), as the rank sees it.

    entry: ranks that wait for a debugger begin, and stop at their first line.
    """

    entry: bool

    @property
    def keeps_failures(self) -> bool:
        """True: uncaught exceptions stop a rank (--post-mortem)."""
        ...

    def attach_arguments(self, *, entry: bool = False) -> Mapping[str, object]:
        """Return the arguments of `attach` for ranks that no editor has."""
        ...

    async def open_in_editor(self, target: DebugTarget) -> Message:
        """Open a rank in the editor that is there; return that as a response."""
        ...

    def event(self, rank: int, event: Message, *, owes: bool) -> None:
        """Send an event of a rank. owes: it owes this console an answer."""
        ...

    def raised(self, rank: int, raised: RaisedInfo) -> None:
        """Send the exception that a rank has stopped at."""
        ...


class ConsoleRank:
    """One rank, as one console knows it. `join` it, `close` it.

    joining: the task that joins it. settled: done once its state is known, or the rank hangs.
    listed: rosters have it.
    """

    def __init__(
        self, console: RankConsole, number: int, target: DebugTarget, shared: SharedDebuggee
    ) -> None:
        self._console = console
        self._number = number
        self._target = target
        self.shared = shared
        self._state: State = "running"
        self.joining: asyncio.Task[None] | None = None
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.listed = False
        self._refusal: DebugError | None = None
        self._owed = 0
        #: It has stopped, or ended.
        self._told = asyncio.Event()

    @property
    def state(self) -> State:
        """As it is by what its debugger, its editor and its connection have shown."""
        # A killed process says nothing, and a program that an editor begins sends no event.
        if self._target.over or self._target.asked is not self.shared:
            return "ended"
        if self._state == "waiting" and self._target.attached:
            return self._standing
        return self._state

    async def join(self) -> None:
        """Find out how it is, and take part in a program that has begun.

        That lasts as long as the rank hangs; it counts as running meanwhile.
        """
        self.shared.watch(self, self._event)
        try:
            await self._join()
        except DebugError as error:
            self._refusal = error
        except ConnectionError:
            self._state = "ended"
        finally:
            self.settle()

    def settle(self) -> None:
        """Let the other ranks wait for it no longer."""
        if not self.settled.done():
            self.settled.set_result(None)

    async def _join(self) -> None:
        self._state = _STATES.get(await self._look(), "running")
        if self._state == "waiting" and self._console.entry:
            await self.begin(entry=True)
            # Then the console learns of the rank as one that has stopped.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ENTRY_S):
                    await self._told.wait()
            return
        if self._state in ("waiting", "ended"):
            return
        if not self.shared.connection.configured and self._target.editor is None:
            # Adopted from a killed session: the agent tells again who stands.
            await self.begin()
        elif self._console.keeps_failures and not self.shared.connection.keeps:
            await self.shared.keep_failures()
        await self.shared.learned(_PATIENCE_S)
        self._state = self._standing

    async def _look(self) -> RankState:
        """Return its state. One that hangs is asked no more: it tells once it goes on."""
        found = (await look([self._target], _PATIENCE_S))[0].state
        question = self.shared.look
        if found is not RankState.SILENT or question is None:
            return found
        if not question.done():
            self._state = self._standing
            self.settle()
            await asyncio.wait([question])
        if self._target.asked is not self.shared:
            return RankState.ENDED
        position = question.result()
        return found if position is None else position["state"]

    @property
    def _standing(self) -> State:
        return "stopped" if self.shared.connection.is_stopped else "running"

    async def begin(self, *, entry: bool = False) -> None:
        """Let the program begin. Raises DebugError, ConnectionError."""
        if entry:
            await self.shared.ask("evaluate", offer_paipdb())
        attach = self._console.attach_arguments(entry=entry)
        await self.shared.begin(attach, keeps=self._console.keeps_failures)
        self._target.begun_by_console()
        self._state = self._standing

    async def ask(self, command: str, arguments: Message) -> Message:
        """Send a request; return its response.

        Raises ConnectionError; DebugError if its debugger has refused this console.
        """
        if self._refusal is not None and not self.shared.connection.configured:
            raise self._refusal
        self._owed += 1
        try:
            if command == OPEN_EDITOR:
                return await self._console.open_in_editor(self._target)
            if command in _SETTING and self.state == "waiting":
                await self.shared.join(self._console.attach_arguments())
            if command == "setExceptionBreakpoints":
                return await self.shared.set_filters(self, arguments)
            if command == "setBreakpoints":
                path = text(section(arguments, "source").get("path"))
                return await self.shared.set_breakpoints(
                    self, path, objects(arguments.get("breakpoints"))
                )
            return await self.shared.ask(command, arguments)
        finally:
            self._owed -= 1

    def entry(self) -> RankEntry:
        """Return the rank as a JSON object."""
        who, raised = self._target.who, self.shared.raised
        entry: RankEntry = {
            "rank": self._number,
            "node": who.node,
            "local": who.local_rank,
            "pid": self._target.debugged_pid,
            "state": self.state,
            "stops": [section(stop, "body") for stop in self.shared.connection.stops],
        }
        if raised is not None:
            entry["raised"] = _raised_json(raised)
        return entry

    def close(self) -> None:
        """Leave it as it is."""
        if self.joining is not None:
            self.joining.cancel()
        self.shared.unwatch(self)

    def _event(self, event: Message) -> None:
        name = event.get("event")
        raised = self.shared.raised
        if name == "tkRaised":
            if raised is not None:
                self._console.raised(self._number, _raised_json(raised))
            return
        if name in ("stopped", "terminated", "exited"):
            self._told.set()
        if name in ("stopped", "continued"):
            self._state = self._standing
        elif name in ("terminated", "exited"):
            self._state = "ended"
        self._console.event(self._number, event, owes=bool(self._owed))


def _raised_json(raised: RaisedException) -> RaisedInfo:
    return {
        "kind": raised.type,
        "text": raised.text,
        "uncaught": raised.uncaught,
        "file": raised.file,
        "line": raised.line,
        "at_s": raised.at_s,
    }
