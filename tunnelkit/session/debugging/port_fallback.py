"""Choice of the ports for editors: the wanted one, or where that is taken the next free one."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from tunnelkit import local_ports
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.errors import DebugError
from tunnelkit.messages.agent_calls import LoopInfo

#: Number of ports that are tried, the wanted one included.
_SPAN = 20
#: Number of a project's session ports that are remembered.
_MOST = 20


def open_near(port: EditorPort, *, but: Collection[int] = ()) -> str | None:
    """Open `port`, or the next one that is free and not in `but`; say which, and why.

    Raises DebugError if all of them are taken.
    """
    wanted = port.port
    first: DebugError | None = None
    for number in range(wanted, min(wanted + _SPAN, 65536)):
        if number in but and number != wanted:
            continue
        port.port = number
        try:
            port.open()
        except DebugError as error:
            first = first or error
            continue
        if number == wanted:
            return None
        by = local_ports.owner(wanted)
        who = f"{by.program} (pid {by.pid})" if by else "another program"
        return f"port {wanted} is taken by {who}: in this session F5 goes to {number}"
    port.port = wanted
    raise first or DebugError(
        f"no debug port is free from {wanted} on",
        hint="end what holds them, or set another: [debug] port in tunnelkit.toml",
    )


class LoopPorts:
    """The ports of a session's loops: its own, of which one loop at a time has the use, or another.

    port: the session's. setting: `[debug] port`, which the session's differs from where that was
    taken. before: ports of this project's sessions before (`session_ports`)."""

    def __init__(self, port: EditorPort, setting: int) -> None:
        self._port = port
        self._setting = setting
        self.before: frozenset[int] = frozenset()

    def wanted(self, given: int | None, named: int | None, *, once: bool) -> int:
        """Return the number for a new loop; 0: any free one.

        given: by --port. named: in the command; there the setting means the session's, which
        launch.json follows. once: the loop takes another port if the session's is in use."""
        own = 0 if once and self._port.busy else self._port.port
        return given or (named if named != self._setting else None) or own

    def open(self, number: int) -> EditorPort:
        """Return the session's port, or another one, open. Raises DebugError."""
        if number == self._port.port:
            return self._port
        port = EditorPort(number)
        port.open()
        return port

    def take(self, number: int) -> EditorPort:
        """Return the port of a new loop. Raises DebugError if it is taken."""
        port = self.open(number)
        if port.busy:
            raise DebugError(
                f"a debug loop already has port {port.port}",
                hint="end it (Ctrl-C twice in its terminal), or give this one another: --port",
            )
        return port

    def again(self, loop: LoopInfo) -> tuple[EditorPort, str | None]:
        """Return the port of a loop that a killed session left, and say if it is another one.

        A loop on its session's port gets this session's, where launch.json leads to.
        Raises DebugError if no port is free."""
        number = loop["editor_port"] or 0
        if not (loop.get("attach") or loop["debug"]):
            return self._port, None
        if not self._port.busy and (number == self._port.port or number in self.before):
            return self._port, None
        port = EditorPort(number)
        moved = open_near(port, but=(self._port.port,))
        return port, moved and f"port {number} is in use: this loop is on port {port.port} now"


def session_ports(file: Path, port: int) -> frozenset[int]:
    """Note the port of a session in `file`; return those of the project's sessions before.

    A loop that a killed session left names the port that it was started for."""
    before: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        before = [int(word) for word in file.read_text("ascii").split()]
    with contextlib.suppress(OSError):
        others = [one for one in before if one != port]
        file.write_text(" ".join(map(str, [port, *others][:_MOST])), "ascii")
    return frozenset(before)
