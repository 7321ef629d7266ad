"""Checks of a loop's command before it starts, on the node or on this machine."""

from __future__ import annotations

import os
import shutil

from tunnelkit.debug.loop_command import LoopCommand
from tunnelkit.errors import DebugError


def check_here(command: LoopCommand) -> None:
    """Check program and file of a loop on this machine. Raises DebugError."""
    if shutil.which(command.program) is None:
        raise no_command(command, None)
    if command.file and not os.path.exists(command.file):
        raise no_file(command, None)


def no_command(command: LoopCommand, node: str | None) -> DebugError:
    """Return the error for a program that does not exist."""
    hint = "check the spelling, and the PATH of the job: tk run printenv PATH"
    if any(character in command.program for character in " ;&|<>$"):
        hint = "for a line of shell: tk loop sh -c 'LINE'"
    elif command.program == "python":
        hint = "if there is python3 only: tk loop python3 ..."
    elif node is None:
        hint = "check the spelling"
    return DebugError(f"{command.program}: not found {_where(node)}", hint=hint)


def no_file(command: LoopCommand, node: str | None, *, left_out: bool = False) -> DebugError:
    """Return the error for a Python file that does not exist. left_out: it is on the laptop."""
    if left_out:
        return DebugError(
            f"{command.file}: not found {_where(node)}, though it is here",
            hint=f"`tk sync --explain {command.file}` says why it is not mirrored",
        )
    return DebugError(f"{command.file}: not found {_where(node)}", hint="check its name")


def _where(node: str | None) -> str:
    return f"on {node}" if node else "on this machine"
