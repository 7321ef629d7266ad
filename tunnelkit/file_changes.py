"""Changes to a user's files, planned first and then written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tunnelkit.errors import DebugError, TunnelkitError
from tunnelkit.text_format import shown

#: No file that tk changes is longer.
_LONGEST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file's content (`before`, None if there is no file) and its planned content."""

    path: Path
    before: bytes | None
    after: bytes

    @property
    def status(self) -> Literal["created", "updated", "already right"]:
        """The relation of the plan to the file that was read."""
        if self.before is None:
            return "created"
        return "already right" if self.before == self.after else "updated"


def read_bytes(path: Path, *, error: type[TunnelkitError] = DebugError) -> bytes | None:
    """Return a file's content, None if there is no file. Raises `error` if it can't be read.

    A pipe or a device, which a cloned project's link may name, is not read."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            found = file.read(_LONGEST_BYTES + 1) if _is_plain(file.fileno()) else None
    except FileNotFoundError:
        return None
    except OSError as failure:
        cause = failure.strerror
    else:
        if found is not None and len(found) <= _LONGEST_BYTES:
            return found
        cause = "it is not a plain file" if found is None else "it is too large"
    raise error(f"{path} can't be read", cause=cause, hint="check the file and its permissions")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _is_plain(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def apply(
    changes: Iterable[FileChange], *, within: Path, error: type[TunnelkitError] = DebugError
) -> None:
    """Write the files that differ, each one atomically. Raises `error`, naming the file.

    A symbolic link stays one: the file that it names is written. Mode and, where
    possible, owner are kept. A file that was changed after the planning is not overwritten.
    within: the folder that holds them all; no link may lead out of it, as a cloned project's
    could, to a file that the user's shell runs.
    """
    for change in check(changes, within=within, error=error):
        target = Path(os.path.realpath(change.path))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(target, change.after)
        except OSError as failure:
            raise error(
                f"{change.path} can't be written",
                cause=failure.strerror,
                hint="check the directory and its permissions",
            ) from None


def check(
    changes: Iterable[FileChange], *, within: Path, error: type[TunnelkitError] = DebugError
) -> list[FileChange]:
    """Return those that `apply` would write now. Raises as `apply`."""
    pending = [change for change in changes if change.status != "already right"]
    for change in pending:
        _check_inside(change.path, within, error)
        _check_unchanged(change, error)
    return pending


def _check_inside(path: Path, within: Path, error: type[TunnelkitError]) -> None:
    target = Path(os.path.realpath(path))
    if not target.is_relative_to(os.path.realpath(within)):
        raise error(
            f"{shown(str(path))} is a link out of {shown(str(within))}",
            cause=f"it leads to {shown(str(target))}",
            hint="put a file of its own in its place",
        )


def _check_unchanged(change: FileChange, error: type[TunnelkitError]) -> None:
    if read_bytes(change.path, error=error) != change.before:
        raise error(f"{change.path} was changed meanwhile", hint="run the command again")
    if change.before is not None and not os.access(change.path, os.W_OK):
        raise error(f"{change.path} is write-protected", hint="make it writable first")


def _write(target: Path, data: bytes) -> None:
    old = _stat(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if old is not None:
                _keep_owner_and_mode(file.fileno(), old)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _keep_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
        # Only root may set the owner; otherwise the file belongs to its last editor.
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
