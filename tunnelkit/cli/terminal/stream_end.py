"""The end of a process on the node, as an exit code."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.output import note
from tunnelkit.text_format import out_of_memory, shown

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import StreamEnd

_NOT_RUN = {"command not found": 127, "Permission denied": 126, "Exec format error": 126}


def exit_code(detail: StreamEnd) -> int:
    """Return the end of a process as an exit code: its own, 128 + signal, or an error's."""
    from tunnelkit.errors import TunnelkitError

    if "failure" in detail:
        raise TunnelkitError.from_json(detail["failure"])
    if killed := out_of_memory(detail.get("oom_kills")):
        note(f"tk: {killed}")
    if name := detail.get("signal"):
        return 128 + int(getattr(signal, name, signal.SIGKILL))
    code = detail.get("code")
    if code is not None:
        return int(code)
    why = str(detail.get("error") or "the process could not be started")
    note(f"tk: {shown(why)}")
    # As a shell would say it: no such command, or one that may not be run.
    return next((code for text, code in _NOT_RUN.items() if text in why), 1)
