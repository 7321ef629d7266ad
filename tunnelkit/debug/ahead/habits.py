"""An editor's habits: its requests after a stop, and its breakpoints, learnt from the last ones.

Before an editor has been seen at a stop it is taken for VS Code, and only what runs no code of the
program is asked ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tunnelkit.debug.dap.messages import Message
from tunnelkit.mux.dap_ahead import MOST_STEPS, NUMBERED, Path

_MOST_EDITORS = 16
_MOST_FILES = 64


def _step(command: str, path: list[str | int], **arguments: object) -> Message:
    return {"command": command, "arguments": arguments, "path": path}


_VS_CODE = (
    _step("threads", []),
    _step("stackTrace", ["thread"], startFrame=0, levels=1),
    _step("stackTrace", ["thread"], startFrame=1, levels=19),
    _step("scopes", ["frame", 0]),
)


class StopRequests:
    """The requests of an editor since a stop, as a plan for the next one."""

    def __init__(self) -> None:
        self._steps: list[Message] = []

    def add(self, command: str, arguments: Mapping[str, object], path: Path) -> None:
        """Add a request. path: of the thread, frame or variable that it names."""
        if len(self._steps) < MOST_STEPS:
            rest = {key: one for key, one in arguments.items() if key != NUMBERED[command]}
            self._steps.append({"command": command, "arguments": rest, "path": list(path)})

    def plan(self) -> list[Message]:
        """Return the plan for the next stop."""
        return self._steps or list(_VS_CODE)


@dataclass
class EditorHabits:
    """One editor's. breakpoints: its last requests `setBreakpoints`, by file; empty ones left out.
    functions: its last `setFunctionBreakpoints`."""

    plan: list[Message] = field(default_factory=lambda: list(_VS_CODE))
    breakpoints: dict[str, Message] = field(default_factory=dict)
    functions: Message | None = None

    def set_breakpoints(self, path: str, arguments: Message) -> None:
        """Note a `setBreakpoints`."""
        if not arguments.get("breakpoints"):
            self.breakpoints.pop(path, None)
        elif path in self.breakpoints or len(self.breakpoints) < _MOST_FILES:
            self.breakpoints[path] = arguments


class Habits:
    """Those of all editors of a loop, by what they call themselves.

    files: the local files that the last of them had breakpoints in.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._editors: dict[str, EditorHabits] = {}

    def of(self, client: str) -> EditorHabits:
        """Return the habits of an editor."""
        if client not in self._editors and len(self._editors) >= _MOST_EDITORS:
            return EditorHabits()
        return self._editors.setdefault(client, EditorHabits())
