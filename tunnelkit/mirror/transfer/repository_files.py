"""Files that make a directory a repository: its configuration and hooks run programs.

Git reads them wherever a shell's prompt, an editor or the user asks for a status. So nothing of the
far side gets there that was not asked for by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from tunnelkit.mirror.tree.paths import parents

#: Of git, Mercurial and Jujutsu; with the short names that Windows gives them. Git's may be a file.
_NAMES = frozenset({".git", "git~1", ".hg", "hg~1", ".jj", "jj~1"})
#: What macOS leaves out where it compares names; as in git's own check (utf8.c).
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
#: A directory that has one of these sets is a bare repository.
_BARE = (("head", "objects", "refs"), ("head", "commondir"))
_SPELLED = {"head": "HEAD"}


def unasked(root: str, paths: Collection[str], wanted: Collection[str]) -> set[str]:
    """Return those of `paths` that belong to a repository, and are not asked for as such.

    root: the laptop's; a repository may be there already, or come in parts (blocking).
    wanted: requested paths. One that names a repository's own file or directory asks for it."""
    asked = frozenset(wanted)
    bare = _bare(root, paths)
    return {path for path in paths if _is_unasked(path, asked, bare)}


def _is_unasked(path: str, asked: Collection[str], bare: Collection[str]) -> bool:
    """Return True if a part of the path that belongs to a repository is in no requested path."""
    parts = path.split("/")
    begin = max((end for end in range(len(parts) + 1) if "/".join(parts[:end]) in asked), default=0)
    # A `.git` that is asked for is a bare repository itself.
    named = any(_plain(one) in _NAMES for one in parts[:begin])
    return any(
        _plain(parts[at]) in _NAMES or (not named and "/".join(parts[:at]) in bare)
        for at in range(begin, len(parts))
    )


def _plain(name: str) -> str:
    """Return a name as the file systems of macOS and Windows compare it."""
    return _IGNORED.sub("", name).partition(":")[0].rstrip(" .").casefold()


def _bare(root: str, paths: Iterable[str]) -> set[str]:
    """Return the directories that are bare repositories, or would be one with these paths."""
    names: dict[str, set[str]] = {}
    for path in paths:
        below = path
        for above in (*parents(path), ""):
            known = above in names
            names.setdefault(above, set()).add(_plain(below.rpartition("/")[2]))
            if known:
                break
            below = above
    return {path for path, found in names.items() if _is_bare(os.path.join(root, path), found)}


def _is_bare(directory: str, coming: Collection[str]) -> bool:
    def has(name: str) -> bool:
        here = os.path.join(directory, _SPELLED.get(name, name))
        return name in coming or os.path.lexists(here)

    return any(all(map(has, names)) for names in _BARE)
