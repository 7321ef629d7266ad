"""The sessions of a loop's ranks: an editor gets others than its own as child sessions."""

from __future__ import annotations

from tunnelkit.debug.dap.session import DapSession
from tunnelkit.debug.dap.session_facts import RANK_KEY
from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.generation import Generation
from tunnelkit.debug.loop_status import RankStatus
from tunnelkit.debug.rank_ports import RankPorts
from tunnelkit.debug.ranks.console_messages import EditorOfRank


async def announce(generation: Generation, ports: RankPorts) -> None:
    """Open child sessions for the ranks that are there and have none yet.

    An editor that came for one rank by name opens the others' sessions itself.
    """
    primary = generation.primary
    editor = primary.editor if primary is not None else None
    if primary is None or editor is None:
        return
    session, facts = editor.session, editor.session.facts
    if not facts.configuration_done or facts.rank is not None or facts.goodbye is not None:
        return
    others = [one for one in generation.targets if _waits(one, primary)]
    for one in others:
        one.announced_as_child = True
    if others and not facts.supports_start_debugging:
        await primary.send_to_editor([session.console(_by_hand(others, ports))])
    for one in others:
        if facts.supports_start_debugging:
            # Its session is a moment away.
            one.adapter.want()
        await primary.send_to_editor([_child(session, one, editor.port)])


async def open_in_editor(
    generation: Generation, target: DebugTarget, ports: RankPorts
) -> EditorOfRank:
    """Open a rank in the editor that is on other ranks, if there is one that can."""
    found: EditorOfRank = {"has": "", "opens": "", "port": ports.port_of(target.who.rank)}
    if target.editor is not None:
        found["has"] = target.editor.name
        return found
    other = _with_editor(generation)
    if other is not None and other.editor is not None:
        session = other.editor.session
        if session.facts.supports_start_debugging:
            found["opens"] = other.editor.name
        target.announced_as_child = True
        target.adapter.want()
        await other.send_to_editor([_child(session, target, other.editor.port)])
    return found


def _with_editor(generation: Generation) -> DebugTarget | None:
    """The rank whose editor opens others: the primary before the others."""
    able = [
        one
        for one in generation.targets
        if one.is_debugged and one.editor is not None and one.editor.session.facts.goodbye is None
    ]
    return min(able, key=lambda one: one is not generation.primary, default=None)


def _waits(target: DebugTarget, primary: DebugTarget) -> bool:
    return (
        target is not primary
        and target.armed
        and not target.over
        and target.editor is None
        and not target.announced_as_child
    )


def _child(session: DapSession, target: DebugTarget, port: int) -> bytes:
    """port: where the editor came to.

    It may know that from elsewhere than its configuration; an empty `connect` would be null by the
    time that Emacs gives it back.
    """
    more = {} if target.who.rank is None else {RANK_KEY: target.who.rank}
    configuration = session.child_configuration(target.who.name, **more)
    if not configuration["connect"]:
        configuration["connect"] = {"host": "127.0.0.1", "port": port}
    return session.start_child(configuration)


def _by_hand(targets: list[DebugTarget], ports: RankPorts) -> str:
    """For editors without child sessions."""
    places = [
        f"{one.who.name}: port {port}"
        for one in targets
        if (port := ports.port_of(one.who.rank)) is not None
    ]
    return (
        "[tk] Other ranks wait for a debugger, too (to let them run free: tk loop --rank 0): "
        + ", ".join(places)
    )


def describe_ranks(generation: Generation | None, ports: RankPorts) -> list[RankStatus]:
    """The ranks that have dialled in, for `tk status --json`."""
    return [
        {
            "rank": one.who.rank,
            "node": one.who.node,
            "pid": one.who.pid,
            "port": ports.port_of(one.who.rank),
            "editor": one.editor.name if one.editor is not None else None,
            "over": one.over,
        }
        for one in (generation.targets if generation is not None else [])
    ]
