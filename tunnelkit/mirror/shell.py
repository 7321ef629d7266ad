"""Small sh scripts on the login host: look at paths, remove paths.

Names go in on stdin and come out on stdout between NULs, so every name is exact. A
marker starts the output: what the login shell printed before it is not ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tunnelkit.errors import ConnectionFailed, MirrorError
from tunnelkit.mirror.base import Remote
from tunnelkit.mirror.owner import Claim, displaced
from tunnelkit.mirror.scan import DIR, FILE, LINK

MARK = b"\0tk-mirror-1\0"
SETUP = "LC_ALL=C; export LC_ALL; printf '\\0tk-mirror-1\\0'\n"
_SSH_FAILED = 255

# stat does not follow the last component; xargs exits 123 where some path is not there.
# An owner's file that is gone is no reason to stop; it is made again after a reconnect.
_GUARD = """
text=$(head -c 4096 -- "$2" 2>/dev/null)
case $text in ""|*"$3"*) ;; *) printf '%s\\0' "$text"; exit 94 ;; esac
"""
_DISPLACED = 94
_SURVEY = 'cd -- "$1" || exit 91\nxargs -0 stat --printf="%f %s %Y %n\\0" -- 2>/dev/null\nexit 0\n'
_REMOVE_FILES = 'cd -- "$1" || exit 91\nxargs -0 rm -f --\n'
_REMOVE_DIRS = 'cd -- "$1" || exit 91\nxargs -0 rmdir -- 2>/dev/null\nexit 0\n'
_STAT = re.compile(rb"([0-9a-f]+) ([0-9]+) (-?[0-9]+) \./(.*)", re.DOTALL)
_KINDS = {0o100000: FILE, 0o040000: DIR, 0o120000: LINK}


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """noise: what the login shell printed before the script began."""

    exit_code: int
    items: list[bytes]
    error_text: str
    noise: bytes = b""


class RemoteStat(NamedTuple):
    """One path as the login host sees it; kind "" is a socket, device or the like."""

    kind: str
    size: int
    mtime_s: int


async def run_script(
    remote: Remote,
    script: str,
    args: Sequence[str],
    *,
    what: str,
    hint: str | None = None,
    stdin: bytes = b"",
    timeout_s: float = 30.0,
    may_fail: bool = False,
) -> ScriptResult:
    """Run `script` under sh with `args` as $1... Raises MirrorError, which says `what`
    and `hint`, if it fails and not `may_fail`; ConnectionFailed (transient) if it never ran."""
    done = await remote.run(
        ["sh", "-c", SETUP + script, "tk", *args], stdin=stdin, timeout_s=timeout_s
    )
    noise, found, output = done.stdout.partition(MARK)
    if not found:
        raise ConnectionFailed(
            f"no answer from a command on {remote.destination()}",
            cause=done.error_text or f"exit code {done.exit_code}",
            transient=True,
            hint="it is tried again; `tk doctor` checks the login shell there",
        )
    if done.exit_code == _SSH_FAILED:
        raise ConnectionFailed(
            f"the connection to {remote.destination()} broke",
            cause=done.error_text or None,
            transient=True,
            hint="it goes on once the connection is back; see `tk status`",
        )
    if done.exit_code != 0 and not may_fail:
        raise MirrorError(
            f"{what} on {remote.destination()}",
            cause=done.error_text or f"exit code {done.exit_code}",
            hint=hint,
        )
    items = output.split(b"\0")[:-1]
    return ScriptResult(done.exit_code, items, done.error_text, noise)


def encode(paths: Iterable[str]) -> bytes:
    """Relative paths for a script's stdin. The `./` keeps a name like `-x` from being read
    as an option."""
    return b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)


async def survey(
    remote: Remote, root: str, paths: Collection[str], *, claim: Claim | None = None
) -> dict[str, RemoteStat]:
    """What is at these paths below `root` now; those with nothing there are left out.
    Raises MirrorHalted if `claim` no longer holds."""
    if not paths:
        return {}
    done = await run_script(
        remote,
        (_GUARD if claim is not None else "") + _SURVEY,
        [root, *((claim.file, claim.owner.id) if claim is not None else ())],
        stdin=encode(sorted(paths)),
        timeout_s=_budget_s(paths),
        what=f"can't look into {root}",
        may_fail=True,
    )
    if done.exit_code == _DISPLACED:
        owner = done.items[-1].decode("utf-8", "replace") if done.items else ""
        raise displaced(remote.destination(), root, owner)
    if done.exit_code != 0:
        raise MirrorError(
            f"can't look into {root} on {remote.destination()}",
            cause=done.error_text or f"exit code {done.exit_code}",
            hint="may you read that directory there? [mirror] remote names it",
        )
    found = {}
    for item in done.items:
        match = _STAT.fullmatch(item)
        if match is not None:
            mode, size, mtime_s, name = match.groups()
            kind = _KINDS.get(int(mode, 16) & 0o170000, "")
            found[os.fsdecode(name)] = RemoteStat(kind, int(size), int(mtime_s))
    return found


async def remove_files(remote: Remote, root: str, paths: Collection[str]) -> str | None:
    """Remove files and symlinks. Returns what rm said if some could not be removed. The
    caller has made sure that no directory above them is a symlink."""
    if not paths:
        return None
    done = await run_script(
        remote,
        _REMOVE_FILES,
        [root],
        stdin=encode(paths),
        timeout_s=_budget_s(paths),
        what=f"can't remove files in {root}",
        may_fail=True,
    )
    return None if done.exit_code == 0 else done.error_text or f"exit code {done.exit_code}"


async def remove_dirs(remote: Remote, root: str, paths: Collection[str]) -> None:
    """Remove those of these directories that are empty, the deepest first."""
    if not paths:
        return
    await run_script(
        remote,
        _REMOVE_DIRS,
        [root],
        stdin=encode(sorted(paths, reverse=True)),
        timeout_s=_budget_s(paths),
        what=f"can't remove directories in {root}",
    )


def _budget_s(paths: Collection[str]) -> float:
    # a busy network file system answers a few hundred lookups a second at worst
    return 30.0 + len(paths) / 300
