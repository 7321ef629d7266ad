"""Small sh scripts on the login host: look at paths, remove paths.

Names go in on stdin and come out on stdout between NULs, so every name is exact.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.remote.owner import OwnerRecord, displaced
from tunnelkit.mirror.tree.scanner import DIR, FILE, LINK
from tunnelkit.remote_script import RemoteHost, run_script

# stat does not follow the last component; xargs exits 123 where some path is not there.
# An owner's file that is gone is no reason to stop; it is made again after a reconnect.
_GUARD = """
text=$(head -c 4096 -- "$2" 2>/dev/null)
case $text in ""|*"$3"*) ;; *) printf '%s\\0' "$text"; exit 94 ;; esac
"""
_NO_ROOT, _DISPLACED = 91, 94
_SURVEY = 'cd -- "$1" || exit 91\nxargs -0 stat --printf="%f %s %Y %n\\0" -- 2>/dev/null\nexit 0\n'
# Any other failure of stat proves nothing: a file server may be away. Below a directory that is not
# there, no path is looked at.
_GONE = r"""
cd -- "$1" || exit 91
xargs -0 sh -c '
is_gone() {
  said=$(stat -- "$1" 2>&1 >/dev/null) && return 1
  case $said in *stat:*": No such file or directory"|*stat:*": Not a directory") return 0 ;; esac
  return 1
}
none=//
for path do
  case $path in "$none"/*) printf "%s\0" "$path"; continue ;; esac
  is_gone "$path" || continue
  printf "%s\0" "$path"
  dir=${path%/*}
  if [ ! -d "$dir" ] && is_gone "$dir"; then none=$dir; fi
done' tk
exit 0
"""
_REMOVE_FILES = 'cd -- "$1" || exit 91\nxargs -0 rm -f --\n'
_REMOVE_DIRS = 'cd -- "$1" || exit 91\nxargs -0 rmdir -- 2>/dev/null\nexit 0\n'
_STAT = re.compile(rb"([0-9a-f]+) ([0-9]+) (-?[0-9]+) \./(.*)", re.DOTALL)
_KINDS = {0o100000: FILE, 0o040000: DIR, 0o120000: LINK}


class RootGone(MirrorError):
    """The remote root is not there any more, or can't be entered."""


class RemoteStat(NamedTuple):
    """One path as the login host sees it; kind "" is a socket, device or the like."""

    kind: str
    size: int
    mtime_s: int


def encode(paths: Iterable[str]) -> bytes:
    """Return relative paths for a script's stdin.

    The `./` keeps a name like `-x` from being read as an option.
    """
    return b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)


async def stat_paths(
    remote: RemoteHost,
    root: str,
    paths: Collection[str],
    *,
    claim: OwnerRecord | None = None,
    timeout_s: float | None = None,
) -> dict[str, RemoteStat]:
    """Return the current stat of these paths below `root`; missing ones are left out.

    timeout_s: None is enough for a busy file system. Raises TimeoutExpired,
    MirrorHalted if `claim` no longer holds, RootGone.
    """
    if not paths:
        return {}
    done = await run_script(
        remote,
        (_GUARD if claim is not None else "") + _SURVEY,
        [root, *((claim.file, claim.owner.id) if claim is not None else ())],
        stdin=encode(sorted(paths)),
        timeout_s=timeout_s or _budget_s(paths),
        what=f"can't look into {root}",
        may_fail=True,
    )
    if done.exit_code == _DISPLACED:
        owner = done.items[-1].decode("utf-8", "replace") if done.items else ""
        raise displaced(remote.destination(), root, owner)
    if done.exit_code != 0:
        error = RootGone if done.exit_code == _NO_ROOT else MirrorError
        raise error(
            f"can't look into {root} on {remote.destination()}",
            cause=done.error_text or f"exit code {done.exit_code}",
            hint="is it still there, and may you read it? [mirror] remote names it; `tk down` and "
            "`tk up` make it again",
        )
    found = {}
    for item in done.items:
        match = _STAT.fullmatch(item)
        if match is not None:
            mode, size, mtime_s, name = match.groups()
            kind = _KINDS.get(int(mode, 16) & 0o170000, "")
            found[os.fsdecode(name)] = RemoteStat(kind, int(size), int(mtime_s))
    return found


async def removed_paths(
    remote: RemoteHost, root: str, paths: Collection[str], *, timeout_s: float | None = None
) -> set[str]:
    """Return those of these paths below `root` that are known not to be there.

    A path that can't be looked at is not one of them. Raises as `stat_paths`.
    """
    there = await stat_paths(remote, root, paths, timeout_s=timeout_s)
    unseen = sorted(set(paths) - there.keys())
    if not unseen:
        return set()
    done = await run_script(
        remote,
        _GONE,
        [root],
        stdin=encode(unseen),
        timeout_s=timeout_s or _budget_s(unseen) + len(unseen) / 50,
        what=f"can't look into {root}",
    )
    gone = {os.fsdecode(item.removeprefix(b"./")) for item in done.items}
    return gone.intersection(unseen)


async def remove_files(remote: RemoteHost, root: str, paths: Collection[str]) -> str | None:
    """Remove files and symlinks. Returns rm's output if some could not be removed.

    The caller has made sure that no directory above them is a symlink.
    """
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


async def remove_dirs(remote: RemoteHost, root: str, paths: Collection[str]) -> None:
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
