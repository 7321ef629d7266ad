"""Compares the file at a path with the state in which tk left it."""

import os
import stat
from typing import Dict, NamedTuple, Optional

from tunnelkit.agent.mirror import file_digest
from tunnelkit.agent.mirror.dirfd_tree import lstat, stamp_of
from tunnelkit.mux.parcels import checked

#: Nothing is there; tk's own; the new content already; somebody's edit; a directory.
ABSENT, OURS, SAME, THEIRS, DIRECTORY = "absent", "ours", "same", "theirs", "directory"

Expect = Optional[Dict[str, object]]


class Verdict(NamedTuple):
    """seen: the stamp at that moment, "" for nothing. digest: of the content, if it was read.

    why: the reason in words for people.
    """

    what: str
    seen: str = ""
    digest: str = ""
    why: str = ""


def judge(dir_fd: int, name: bytes, expect: Expect, new: str, *, link: bool) -> Verdict:
    """Judge the file that is there now.

    new: sha256 of what will be there, a symlink if `link`; "" if nothing will. Raises OSError if
    even lstat fails.
    """
    state = lstat(dir_fd, name)
    if state is None:
        return Verdict(ABSENT)
    seen = stamp_of(state)
    if stat.S_ISDIR(state.st_mode):
        return Verdict(DIRECTORY, seen)
    if expect is not None:
        left = expect.get("stamp")
        if left == seen:
            return Verdict(OURS, seen)
        if not left and stat.S_ISREG(state.st_mode) and _fits(expect, state):
            return Verdict(OURS, seen)
    try:
        found = file_digest.read(dir_fd, name)
    except file_digest.NotContent:
        return Verdict(THEIRS, seen, why="neither a file nor a symlink is there")
    except FileNotFoundError:
        return Verdict(ABSENT)
    except OSError as error:
        return Verdict(THEIRS, seen, why=f"unreadable: {error.strerror}")
    seen, digest = found.stamp, found.digest
    if digest == new and stat.S_ISLNK(found.state.st_mode) == link:
        return Verdict(SAME, seen, digest)
    if expect is not None and digest in checked(expect.get("digests", []), list):
        return Verdict(OURS, seen, digest)
    why = "it was changed there" if expect is not None else "tk did not send what is there"
    return Verdict(THEIRS, seen, digest, why)


def _fits(expect: Dict[str, object], state: os.stat_result) -> bool:
    seconds = expect.get("mtime_s")
    return expect.get("size") == state.st_size and (
        seconds is None or seconds == state.st_mtime_ns // 1_000_000_000
    )
