"""`tk pull`: outputs from the cluster to the laptop; and the cluster's side of a conflict.

A pull fetches files that the mirror does not own. A file that it owns comes from the laptop and
is the same there, or is a conflict, which `tk sync --theirs` settles. A local file that is
newer than the remote one stays. A transfer that broke off continues with the next call: its
partial files are in .tk-replaced/partial until then.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tunnelkit.errors import MirrorError, TimeoutExpired
from tunnelkit.mirror.api import name_paths
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.pull_rounds import Fetch, check_complete, named_and_gone
from tunnelkit.mirror.record.manifest import Manifest
from tunnelkit.mirror.record.pulled_files import PulledFiles
from tunnelkit.mirror.remote.edits import relative_to
from tunnelkit.mirror.remote.owner import OWNER_FILE
from tunnelkit.mirror.same_moment import new_since_ns, written_again
from tunnelkit.mirror.transfer.base import FetchRule, Transfer
from tunnelkit.mirror.transfer.destination import admitted, hostile, own_dir, tidy
from tunnelkit.mirror.transfer.listing import stream_items
from tunnelkit.mirror.transfer.repository_files import unasked
from tunnelkit.mirror.tree.ignore import REPLACED_DIR
from tunnelkit.mirror.tree.paths import parents
from tunnelkit.remote_script import RemoteHost

# find fails for what it can't read, and for a file that vanishes while it looks: a job's temporary
# file is no failure. The text tells which: -ignore_readdir_race is not in every find.
_LIST = rf"""
cd -- "$1" || exit 91
printf 'now %s\0' "$(date +%s)"
root=$(pwd -P); shift
exec 3>&1
for path do
  dir=.; case $path in */*) dir=${{path%/*}} ;; esac
  real=$(cd -- "./$dir" 2>/dev/null && pwd -P) || {{ printf 'gone %s\0' "$path"; continue; }}
  case $real/ in "${{root%/}}"/*) ;; *) printf 'outside %s\0' "$path"; continue ;; esac
  [ -e "./$path" ] || [ -L "./$path" ] || {{ printf 'gone %s\0' "$path"; continue; }}
  said=$(find "./$path" \( -name {REPLACED_DIR} -o -name {OWNER_FILE} \) -prune \
    -o -type d ! \( -readable -executable \) -exec test -e {{}} \; -printf 'unread %p\0' -prune \
    -o \( -type f -o -type l \) -printf '%s %p\0' 2>&1 >&3) && continue
  [ "$(find . -prune -printf x 2>/dev/null | head -c 1)" ] ||
    {{ printf 'find %s\0' "$said"; break; }}
  printf '%s\n' "$said" | grep -v ': No such file or directory$' >/dev/null || continue
  printf 'unread ./%s\0' "$path"
done
exit 0
"""
_LIST_TIMEOUT_S = 300.0
_STALL_S = 60
_BIG_BYTES = 8 << 20
_SIZE_DIGITS = 19
#: Paths of one command. Quoted they may be five times as long, and a command's word has 128 KiB.
_MOST_BYTES = 20_000

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class PullReport:
    """The result of a pull; paths relative to the root.

    pulled: files that were fetched. kept: local files that are the same, newer,
    or edited since they were pulled.
    refused: not fetched, and not on the laptop: devices, or symlinks that lead out.
    gone: listed, and removed there before they came.
    owned: left out since the mirror or a repository owns them. mirrored: those of `pulled` that no
    ignore rule names: the mirror owns them from now on. unread: what could not be listed there, so
    that not all below it was fetched. uncompared: those of `kept` that the job may have written
    again in the moment of the last pull, and that could not be read there in time.
    """

    pulled: tuple[str, ...] = ()
    bytes: int = 0
    kept: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()
    mirrored: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a pull.

    real_root: the remote root, symlinks resolved. remote_root: as the user names it."""

    remote: RemoteHost
    rsync: Transfer
    local_root: str
    remote_root: str
    real_root: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The remote files and symlinks, as {path: bytes}, and the paths that could not be listed.

    at_s: the time there when the listing began; the laptop's if the host does not say it."""

    sizes: dict[str, int]
    unread: list[str]
    at_s: int


def wanted_path(sides: Sides, path: str) -> str:
    """Return a user's path relative to the root.

    It is a remote path below the remote root, or an absolute local one below the local root.
    Raises MirrorError for others."""
    plain = posixpath.normpath(path)
    for root in (sides.remote_root.rstrip("/"), sides.real_root.rstrip("/")):
        if plain == root or plain.startswith(root + "/"):
            return posixpath.relpath(plain, root) if plain != root else ""
    return relative_to(sides.local_root, path)


async def listing(sides: Sides, wanted: Sequence[str]) -> Listing:
    """Return the remote files and symlinks at and below these paths; no symlink is followed.

    Raises MirrorError for paths that don't exist or lie outside of the remote root."""
    host = sides.remote.destination()
    asked = frozenset(wanted)
    sizes: dict[str, int] = {}
    unread: list[str] = []
    begins: list[int] = []

    def take(item: bytes) -> None:
        word, _, name = os.fsdecode(item).partition(" ")
        if word == "gone":
            raise MirrorError(
                f"{name_paths([name])} is not in {host}:{sides.remote_root}",
                hint=f"`tk run ls` shows what is there; paths are relative to {sides.local_root}",
            )
        if word == "outside":
            raise MirrorError(
                f"{name_paths([name])} leads out of {host}:{sides.remote_root}",
                cause="a symlink on the cluster",
                hint="copy it into the project's directory there first",
            )
        if word == "find":
            raise MirrorError(
                f"can't list files in {sides.real_root} on {host}",
                cause=name_paths([name]),
                hint="install GNU find (findutils) there: its -printf is needed",
            )
        if word == "unread":
            is_root = name == "./." and "" in asked
            unread.append("." if is_root else admitted(name, asked, host))
            return
        if word == "now":
            if _is_number(name):
                begins.append(int(name))
            return
        if not _is_number(word):
            raise hostile(host, "its list of files can't be read")
        sizes[admitted(name, asked, host)] = int(word)

    for part in _parts(wanted):
        await stream_items(
            sides.remote,
            _LIST,
            [sides.real_root, *(one or "." for one in part)],
            take,
            what=f"can't list files in {sides.real_root}",
            timeout_s=_LIST_TIMEOUT_S,
        )
    return Listing(sizes, unread, min(begins, default=int(time.time())))


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < _SIZE_DIGITS


def _parts(paths: Sequence[str]) -> Iterator[list[str]]:
    """Cut paths into parts that fit into a command."""
    part: list[str] = []
    left = _MOST_BYTES
    for path in paths:
        left -= len(os.fsencode(path)) + 3
        if left < 0 and part:
            yield part
            part, left = [], _MOST_BYTES - len(os.fsencode(path)) - 3
        part.append(path)
    if part:
        yield part


async def pull(
    sides: Sides,
    wanted: Sequence[str],
    *,
    owned: Callable[[str], bool],
    record: Manifest,
    on_progress: OnProgress = lambda progress: None,
) -> PullReport:
    """Fetch these paths (relative to the root).

    owned: returns True if the mirror owns a path. record: notes the paths, before the first of
    them is here. Raises MirrorError, also if a file of `wanted` itself was removed meanwhile;
    ConnectionFailed. The next call continues a transfer that broke off."""
    begin = time.monotonic()
    found = await listing(sides, wanted)
    ours = await asyncio.to_thread(unasked, sides.local_root, found.sizes, wanted)
    ours |= set(filter(owned, found.sizes))
    sizes = {path: size for path, size in found.sizes.items() if path not in ours}
    await asyncio.to_thread(_check_parents, sides.local_root, sizes)
    came: list[str] = []
    gone: set[str] = set()
    uncompared: set[str] = set()
    await asyncio.to_thread(record.mark_pulled, sizes)
    if sizes:
        progress = Progress(len(sizes), sum(sizes.values()))
        came, gone, uncompared = await _bring(
            sides, sizes, record.pulled, progress, on_progress, since_ns=new_since_ns(found.at_s)
        )
    if named := await named_and_gone(sides.remote, sides.real_root, wanted, gone):
        raise MirrorError(
            f"{name_paths(named)} is not on {sides.remote.destination()} any more",
            cause="it was removed there while it was pulled",
            hint="what else you asked for has come; `tk run ls` shows what is there",
        )
    others = sorted(sizes.keys() - gone.union(came))
    kept = await asyncio.to_thread(_that_are_here, sides.local_root, others)
    return PullReport(
        pulled=tuple(came),
        bytes=sum(sizes[path] for path in came),
        kept=tuple(path for path in others if path in kept),
        refused=tuple(path for path in others if path not in kept),
        owned=tuple(sorted(ours)),
        unread=tuple(sorted(set(found.unread))),
        gone=tuple(sorted(gone)),
        uncompared=tuple(sorted(uncompared)),
        duration_s=time.monotonic() - begin,
    )


def _that_are_here(root: str, paths: Collection[str]) -> set[str]:
    return {path for path in paths if os.path.lexists(os.path.join(root, path))}


async def _bring(
    sides: Sides,
    sizes: dict[str, int],
    pulled: PulledFiles,
    progress: Progress,
    on_progress: OnProgress,
    *,
    since_ns: int,
) -> tuple[list[str], set[str], set[str]]:
    """Fetch these files. Return those that came, those that were removed there meanwhile, and
    those of which it is not known whether the job has written them again.

    since_ns: see `new_since_ns`."""
    partial = await asyncio.to_thread(own_dir, sides.local_root, "partial")

    def listen(data: bytes) -> None:
        progress.feed(data)
        on_progress(progress)

    big = frozenset(path for path, size_bytes in sizes.items() if size_bytes > _BIG_BYTES)
    before, unsettled = pulled.placed(sizes), pulled.unsettled(sizes)
    rule = FetchRule(
        newer_stays=True,
        placed=dict(before),
        safe_links=True,
        partial_dir=partial,
        big=big,
        stall_s=_STALL_S,
    )
    fetch = Fetch(sides.remote, sides.rsync, sides.real_root)
    kept = None
    uncompared: set[str] = set()
    try:
        came, gone = await fetch.those_there(sizes, sizes, rule, listen)
        try:  # only now: it may take long, and what else there is has come
            other = await written_again(
                sides.remote, sides.real_root, sides.local_root, unsettled, sizes
            )
        except (MirrorError, TimeoutExpired):
            other, uncompared = frozenset(), unsettled.keys() - came - gone
        if other:
            # Size and time don't show whether the job wrote them again or the user edited them.
            kept = await asyncio.to_thread(own_dir, sides.local_root, _stamp())
            keeping = replace(rule, other=other, backup_dir=kept)
            some, removed = await fetch.those_there(other, sizes, keeping, listen)
            came, gone = came | some, gone | removed
    finally:
        placed = {path: one for path, one in rule.placed.items() if one != before.get(path)}
        await asyncio.to_thread(pulled.note, placed, new_since_ns=since_ns)
        for directory in filter(None, (partial, kept)):
            await asyncio.to_thread(tidy, directory)
    old = {path for path, (_, mtime_ns) in unsettled.items() if mtime_ns < since_ns}
    await asyncio.to_thread(pulled.settle, old.difference(placed, uncompared))
    return sorted(came), gone, uncompared


def _stamp() -> str:
    """Return the name of a directory for what is replaced now."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


async def take_theirs(sides: Sides, paths: Collection[str], wanted: Collection[str]) -> str:
    """Fetch the cluster's version of these mirrored files.

    wanted: the paths that the user has named, at or above them. The laptop's files are kept in the
    directory that is returned. Raises MirrorError, ConnectionFailed."""
    if left := await asyncio.to_thread(unasked, sides.local_root, paths, wanted):
        raise MirrorError(
            f"nothing is taken: {name_paths(sorted(left))} may run programs here",
            cause="a repository's own files: git runs what its configuration and hooks name",
            hint="look at them there; `tk sync --theirs` takes each that you name itself",
        )
    await asyncio.to_thread(_check_parents, sides.local_root, paths)
    found = await listing(sides, sorted(paths))
    kept = await asyncio.to_thread(own_dir, sides.local_root, _stamp())
    rule = FetchRule(backup_dir=kept, safe_links=True, stall_s=_STALL_S)
    try:
        result = await sides.rsync.fetch(
            paths, sides.real_root, rule=rule, size_bytes=sum(found.sizes.values())
        )
    finally:
        await asyncio.to_thread(tidy, kept)
    check_complete(result, sides.remote)
    if missing := frozenset(paths) - result.came:
        raise MirrorError(
            f"{name_paths(sorted(missing))} did not come from {sides.remote.destination()}",
            cause="there it is no file, or a symlink that leads out of the project",
            hint="look at it there with `tk run ls -l`; `tk sync --ours` keeps the laptop's",
        )
    return str(kept)


def _check_parents(local_root: str, paths: Collection[str]) -> None:
    """Raise MirrorError if a parent directory is a symlink."""
    checked: set[str] = set()
    for path in paths:
        for above in parents(path):
            if above in checked:
                break
            checked.add(above)
            full = os.path.join(local_root, above)
            if os.path.islink(full):
                inside = os.path.realpath(full).startswith(local_root.rstrip("/") + "/")
                where = "is not followed" if inside else f"leads out of {local_root}"
                raise MirrorError(
                    f"{name_paths([path])} is not pulled",
                    cause=f"{name_paths([above])} is a symlink that {where}",
                    hint="remove it, or put a directory in its place",
                )
