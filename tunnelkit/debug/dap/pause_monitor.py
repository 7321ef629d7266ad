"""A `pause` that comes to nothing: the program is in native code, where Python can't stop it."""

from __future__ import annotations

from tunnelkit.debug.dap.messages import Message, section

#: Requests after which a stopped program runs again.
_RESUMES = frozenset(
    {b"continue", b"next", b"stepIn", b"stepOut", b"stepBack", b"reverseContinue", b"goto"}
)


def stopped_by_name(message: Message, name: str) -> Message:
    """A `stopped` event whose description tells which process it is.

    Editors show it as it is; in VS Code it takes its room from the session's name, so it is short.
    """
    body = section(message, "body")
    how = body.get("description")
    if not isinstance(how, str) or not how:
        how = str(body.get("reason") or "paused")
    return {**message, "body": {**body, "description": f"{name}: {how}"}}


class PauseMonitor:
    """Notes what is said about stopping.

    debugpy answers `pause` at once (or, while native code holds the GIL, not at all); whether
    anything stops is known by `stopped` only.
    """

    def __init__(self) -> None:
        #: The pid of the session's process, once an event has named it.
        self.pid: int | None = None
        self._count = 0
        self._asked: int | None = None
        self._open = False
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """True while the program stands."""
        return self._stopped

    def request(self, command: bytes) -> None:
        """The editor asks for this."""
        if command in _RESUMES:
            self._stopped = False
        elif command == b"pause" and not self._stopped:
            self._count += 1
            self._asked, self._open = self._count, True

    def event(self, name: bytes) -> None:
        """The adapter tells this."""
        if name == b"continued":
            self._stopped = False
        elif name == b"stopped":
            self._stopped, self._open = True, False
        elif name in (b"terminated", b"exited"):
            self._open = False

    def take(self) -> int | None:
        """The pause asked for since the last call, to be given to `unanswered` later."""
        asked, self._asked = self._asked, None
        return asked

    def unanswered(self, asked: int) -> str:
        """The message if nothing has stopped since that pause.

        "" if something has, or if a later pause is waited for.
        """
        if not self._open or asked != self._count:
            return ""
        self._open = False
        pid = "PID" if self.pid is None else self.pid
        return (
            "Not paused yet: the program is in native code (C, CUDA or a system call), where "
            "Python can't be stopped. It stops as soon as it is back in Python. Where it is: "
            f"tk run py-spy dump --pid {pid}   (on the node itself without `tk run`; py-spy "
            "comes by pip)"
        )
