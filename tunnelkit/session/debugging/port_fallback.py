"""Choice of the editor port if the wanted one is taken: the next free port."""

from __future__ import annotations

from collections.abc import Collection

from tunnelkit import local_ports
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.errors import DebugError

#: Number of ports that are tried, the wanted one included.
_SPAN = 20


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
