"""Detect that the roots of two pods are one directory.

The owner file can't tell: it may lie beside a volume's mount point. So the host that writes puts a
mark into the root, with a secret content, and the other host says what it finds there. The mark's
name is new each time: a network file system has nothing about it in a cache. The host that is
asked does not get the secret: it can't claim what it does not see.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from tunnelkit.mirror.remote.root import FIND_OWNER, check_remote_dir
from tunnelkit.remote_script import RemoteHost, run_script

_PREFIX = ".tk-volume-"
_TIMEOUT_S = 20.0
_OWNER_TEXT = FIND_OWNER + "head -c 4096 -- \"$file\" 2>/dev/null\nprintf '\\0'\n"
# Readable for another user: pods that share a volume may run as several.
_MARK = (
    'cd -- "$1" || exit 91\nset -- "$(pwd -P)" "$2"\n'
    + _OWNER_TEXT
    + rf"""
find . -maxdepth 1 -name '{_PREFIX}*' -mmin +10 -exec rm -f -- {{}} + 2>/dev/null
umask 022
set -C
cat >"{_PREFIX}$2" || exit 93
"""
)
_UNMARK = f'rm -f -- "$1/{_PREFIX}$2"\n'
_LOOK = (
    r"""
root=$1; shift
case $root in "~/"*) root=${HOME%/}/${root#"~/"} ;; esac
cd -- "$root" 2>/dev/null || { printf 'absent\0'; exit 0; }
printf 'there\0%s\0' "$root"
"""
    rf"""for name do head -c 64 -- "{_PREFIX}$name" 2>/dev/null; printf '\0'; done
set -- "$(pwd -P)"
""" + _OWNER_TEXT
)


@dataclass(frozen=True, slots=True)
class RootMark:
    """A mark in a root. root: where it was put.

    owner: the text of the root's owner file, "" if there is none. is_there: False if it could not
    be written."""

    root: str
    name: str
    secret: str
    owner: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class RootLook:
    """The marks that a host sees in its root, in the order of the question, and the owner file.

    root: absolute, as it is named there; "" if it is missing."""

    root: str = ""
    found: tuple[str, ...] = ()
    owner: str = ""

    def sees(self, marks: Sequence[RootMark]) -> RootMark | None:
        """Return the mark that it sees, or None."""
        pairs = zip(marks, self.found, strict=False)
        return next((mark for mark, text in pairs if mark.is_there and text == mark.secret), None)

    def shares_owner(self, marks: Sequence[RootMark]) -> RootMark | None:
        """Return the mark of a root with the same owner file, or None.

        The file has a random turn: of two files no texts are the same."""
        return next((mark for mark in marks if self.owner and mark.owner == self.owner), None)


async def mark(remote: RemoteHost, root: str) -> RootMark:
    """Put a mark into a root that exists. Raises ConnectionFailed, TimeoutExpired."""
    name, secret = secrets.token_hex(12), secrets.token_hex(16)
    done = await run_script(
        remote,
        _MARK,
        [root, name],
        stdin=secret.encode(),
        what=f"can't put a file into {root}",
        timeout_s=_TIMEOUT_S,
        may_fail=True,
    )
    owner = os.fsdecode(done.items[0]) if done.items else ""
    return RootMark(root, name, secret, owner, done.exit_code == 0)


async def unmark(remote: RemoteHost, put: RootMark) -> None:
    """Remove a mark. Raises TunnelkitError."""
    await run_script(
        remote,
        _UNMARK,
        [put.root, put.name],
        what=f"can't remove a file in {put.root}",
        timeout_s=_TIMEOUT_S,
    )


async def look(remote: RemoteHost, remote_dir: str, marks: Sequence[RootMark]) -> RootLook:
    """Look for these marks in a host's own root, which may be missing there. Raises as `mark`."""
    done = await run_script(
        remote,
        _LOOK,
        [check_remote_dir(remote_dir), *(one.name for one in marks)],
        what=f"can't look into {remote_dir}",
        timeout_s=_TIMEOUT_S,
    )
    items = [os.fsdecode(item) for item in done.items]
    if len(items) != len(marks) + 3:
        return RootLook()  # it is not there
    _, root, *found, owner = items
    return RootLook(root, tuple(found), owner)
