"""Dispatch of editors: each gets a debuggee, waits for one, or gets the reason.

tk reads from an editor of a loop of ranks until its `attach`, which names the rank; only then is it
given to an adapter. Others go to the adapter unread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from tunnelkit.debug.dap.attach_handshake import AttachRequest, read_until_attach
from tunnelkit.debug.dap.editor_port import Editor
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.dap.proxy import SourceFiles
from tunnelkit.debug.debug_target import AdapterGone, DebugTarget
from tunnelkit.debug.generation import Generation, Reservation
from tunnelkit.errors import DebugError, TunnelkitError
from tunnelkit.mux.tasks import cancel_all

#: Seconds after which a second editor is refused while another has the debuggee: the first may be
#: just about to hang up.
_SECOND_EDITOR_WAIT_S = 1.0
#: Also without an event, how things are is looked at this often while an editor waits.
_LOOK_S = 0.25


class DispatchedLoop(Protocol):
    """The part of a loop that the dispatch uses."""

    @property
    def ranked(self) -> bool:
        """True for a loop whose runs are ranks."""
        ...

    def first(self) -> Generation | None:
        """The first generation that is not spent: the one that an F5 of now is about."""
        ...

    def with_new_child(self) -> DebugTarget | None:
        """The target of a spent run that has just started a child process, for an editor."""
        ...

    def next_is_wanted(self) -> None:
        """Note that an editor has come: a run that hangs at its end is in the way."""
        ...

    def stand(self) -> str | None:
        """The reason why no debuggee will come; None if one may."""
        ...

    @property
    def changed(self) -> asyncio.Event:
        """Set (and replaced) with every change."""
        ...


class EditorDispatch:
    """Serves the editors of one loop. `serve` for each; its caller closes the editor.

    refresh: awaited before an editor is given anything. capabilities: the body of an
    adapter's answer to `initialize`.
    """

    def __init__(
        self,
        loop: DispatchedLoop,
        *,
        place: Callable[[], SourceFiles | None],
        refresh: Callable[[], Awaitable[None]],
        capabilities: Callable[[], Awaitable[Message]],
    ) -> None:
        self._loop = loop
        self._place = place
        self._refresh = refresh
        self._capabilities = capabilities

    async def serve(self, editor: Editor, rank: int | None = None) -> None:
        """Serve one editor to its end. rank: the one whose own port it came to."""
        wish: AttachRequest | None = AttachRequest()
        try:
            await self._refresh()
            capabilities = await self._capabilities() if self._loop.ranked else None
        except TunnelkitError as error:
            await editor.refuse(error.one_line())
            return
        if capabilities is not None:
            self._place_of(editor, capabilities)
            wish = await read_until_attach(editor)
        if wish is not None:
            await self._give(editor, wish if rank is None else wish.for_rank(rank))

    def _place_of(self, editor: Editor, capabilities: Message | None = None) -> SourceFiles | None:
        """Return where the editor's files are on the node; its session learns it, too."""
        place = self._place()
        editor.session.prepare(place.mirror if place is not None else None, capabilities)
        return place

    async def _give(self, editor: Editor, wish: AttachRequest) -> None:
        while (target := await self._claim(editor, wish)) is not None:
            place = self._place() if wish.request is not None else self._place_of(editor)
            try:
                await target.carry_editor(editor, place, wish.opening)
                return
            except AdapterGone:
                # The editor has not been answered yet: it waits for the next debuggee.
                target.run.give_up("its adapter died")
                if wish.opening is not None:
                    return
            except DebugError as error:
                # The program stays where it is, and the next editor tries again.
                target.editor = None
                await editor.refuse(error.one_line(), wish.request)
                return
            finally:
                if target.editor is editor:
                    target.editor = None
                    target.run.editor_gone(target)

    async def _claim(self, editor: Editor, wish: AttachRequest) -> DebugTarget | None:
        """Wait for a debuggee for this editor. None: it hung up or was refused."""
        receiving: asyncio.Task[bool] | None = None
        patience = asyncio.get_running_loop().time() + _SECOND_EDITOR_WAIT_S
        try:
            while True:
                changed = self._loop.changed
                answer = self._answer(editor, wish, patience)
                if isinstance(answer, DebugTarget):
                    return answer
                if answer is not None:
                    break
                receiving = receiving or asyncio.create_task(editor.receive_early())
                waiting = asyncio.create_task(changed.wait())
                await asyncio.wait(
                    [waiting, receiving], timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED
                )
                await cancel_all(waiting)
                if receiving.done():
                    if not receiving.result():
                        return None
                    receiving = None
        finally:
            # A read cancelled here has taken nothing from the socket.
            if receiving is not None:
                await cancel_all(receiving)
        with contextlib.suppress(OSError):
            await editor.refuse(answer, wish.request)
        return None

    def _answer(
        self, editor: Editor, wish: AttachRequest, patience: float
    ) -> DebugTarget | str | None:
        """The debuggee that `editor` now has, or why it can't have one, or None: wait."""
        if wish.sub_process_id is None:
            parent = None if self._loop.ranked else self._loop.with_new_child()
            if parent is not None:
                # Its main code has ended, and it waits for the child: no F5 of the next run.
                parent.children_expected -= 1
                return parent
            self._loop.next_is_wanted()
        generation = self._loop.first()
        if generation is None:
            return self._loop.stand()
        its_rank_is_here = wish.rank is not None and generation.rank(wish.rank) is not None
        if generation.claim is Reservation.NOT_YET and not its_rank_is_here:
            return self._loop.stand()
        target = self._wanted(generation, wish)
        if isinstance(target, str) or target is None:
            return target
        if wish.sub_process_id is not None and target.editor is not None:
            return target
        if target.armed and target.editor is None and not target.over:
            target.editor = editor
            return target
        if target.children_expected > 0 and not generation.ranked:
            # A session for a child process goes to the adapter that announced it.
            target.children_expected -= 1
            return target
        if asyncio.get_running_loop().time() < patience:
            return None
        if target.editor is not None:
            what = "this process" if target.who.rank is None else target.who.name
            return f"{target.editor.name} is already debugging {what}. Stop it there first."
        primary = generation.primary
        if target.over and primary is not None and primary.editor is not None and not primary.over:
            # As VS Code's Restart asks for, on the session of one rank.
            return (
                f"{target.who.name} was let go, while {primary.who.name} is still debugged. "
                f"Restart {primary.who.name} instead: it brings all ranks back."
            )
        if target.over and target is primary and (held := _held(generation)) is not None:
            return (
                f"{target.who.name} has ended, while {held.who.name} is still debugged. "
                "Stop it there: once all ranks have ended, they begin again."
            )
        return None

    def _wanted(self, generation: Generation, wish: AttachRequest) -> DebugTarget | str | None:
        if wish.sub_process_id is not None:
            parents = [one for one in generation.targets if one.announced(wish.sub_process_id)]
            # Each pod counts its processes from 1. A child's session has its parent's arguments.
            rank = None if wish.rank is None else generation.rank(wish.rank)
            parent = rank or generation.primary
            return parent if parent in parents or not parents else parents[-1]
        if wish.rank is None:
            return generation.primary
        target = generation.rank(wish.rank)
        if target is not None:
            return target
        if generation.only is not None and wish.rank not in generation.only:
            return f"Rank {wish.rank} runs free: the loop was started for other ranks (--rank)."
        if generation.world_size and wish.rank >= generation.world_size:
            return f"There is no rank {wish.rank}: the program has {generation.world_size}."
        return None


def _held(generation: Generation) -> DebugTarget | None:
    """A rank that some editor has."""
    return next((one for one in generation.targets if one.is_debugged), None)
