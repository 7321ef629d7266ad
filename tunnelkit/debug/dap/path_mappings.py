"""pathMappings as the mirror knows them: where the editor's files are on the cluster.

Facts about pydevd that this leans on (pydevd_file_utils.py, setup_client_server_paths):
the first mapping in the list whose root matches wins, in both directions; `~` and
${...} are not expanded; a remoteRoot of "." is the debuggee's working directory.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import re
import sys
import unicodedata
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from tunnelkit.mount_points import kind_of

Parts = tuple[str, ...]

_SSHFS = "fuse.sshfs"
_DRIVE = re.compile(r"[A-Za-z]:([\\/]|$)")
#: VS Code expands these; other clients that read a launch.json may not.
_WORKSPACE = re.compile(r"\$\{workspace(?:Folder|Root)(?::[^}]*)?\}")


def _fold_here() -> bool:
    return sys.platform in ("darwin", "win32")


@dataclass(frozen=True)
class MappedRoots:
    """A mirror's two roots, absolute.

    fold_case: the laptop's file names ignore case. also: further mirrors; no root lies in another,
    here or there.
    """

    local_root: str
    remote_root: str
    fold_case: bool = field(default_factory=_fold_here)
    also: tuple[MappedRoots, ...] = ()

    def with_also(self, *more: MappedRoots) -> MappedRoots:
        """The same with these further mirrors."""
        return replace(self, also=more)

    def holds(self, path: str) -> bool:
        """True if `path`, as an editor writes it, is a local root or below one."""
        mirrors = (self, *self.also)
        if any(one._rest(path) is not None for one in mirrors):
            return True  # no file is looked at
        return any(one.below(path) is not None for one in mirrors)

    def below(self, path: str) -> Parts | None:
        """The rest of a local path below (or at) the local root; None if outside.

        The root has no symlinks; an editor that was opened through one writes paths with it.
        """
        rest = self._rest(path)
        if rest is not None:
            return rest
        rests = (self._rest(one) for one in _resolved(path))
        return next((rest for rest in rests if rest is not None), None)

    def _rest(self, path: str) -> Parts | None:
        return rest_of(self.key(self.local_root), self.key(path))

    def above(self, path: str) -> Parts | None:
        """The way from a local directory down to the local root; None if there is none."""
        return rest_of(self.key(path), self.key(self.local_root))

    def key(self, path: str) -> Parts | None:
        """A local path for comparison; None unless it is absolute."""
        parts = parts_of(path)
        return None if parts is None else self.fold(parts)

    def fold(self, parts: Parts) -> Parts:
        """Components as the laptop's file system compares them."""
        if not self.fold_case and not _is_windows(self.local_root):
            return parts
        # macOS stores names decomposed and finds them either way.
        return tuple(unicodedata.normalize("NFC", part).casefold() for part in parts)


@dataclass(frozen=True)
class Correction:
    """The mappings to use, and the remote roots given that were wrong, of these mirrors."""

    mappings: list[object]
    wrong: tuple[str, ...] = ()
    mirrors: tuple[MappedRoots, ...] = ()

    def notice(self) -> str:
        """The one line for the user."""
        said = ", ".join(self.wrong)
        right = ", ".join(f"{one.local_root} -> {one.remote_root}" for one in self.mirrors)
        return (
            f"path mappings taken from the mirror: {right} (the launch configuration said {said})"
        )


def correct(given: object, mirror: MappedRoots) -> Correction | None:
    """The editor's pathMappings, changed so that they agree with the mirror; None: they do already.

    Missing ones are added and unexpanded ones expanded silently; `wrong` lists those that
    contradicted. Mappings that have nothing to do with the mirror stay, and so does one of a
    directory inside it that leads out of the remote root to another layout (a virtual environment,
    an installed copy): the mirror says nothing about such places.
    """
    given = given if isinstance(given, list) else []
    mappings, wrong, wronged = given, list[str](), list[MappedRoots]()
    # Twice where there are several: one may have had to take away what placed another.
    for one in (mirror, *mirror.also) * (2 if mirror.also else 1):
        work = _Work(one)
        for mapping in mappings:
            work.take(mapping)
        if not work.placed and not work.same_paths:
            work.put(one.local_root, one.remote_root)
        mappings = work.result
        wrong += [root for root in work.wrong if root not in wrong]
        if work.wrong and one not in wronged:
            wronged.append(one)
    if mappings == given:
        return None
    return Correction(mappings, tuple(wrong), tuple(wronged))


class _Work:
    """One pass over a list of mappings."""

    def __init__(self, mirror: MappedRoots) -> None:
        self.mirror = mirror
        self.remote = parts_of(mirror.remote_root) or ()
        self.same_paths = parts_of(mirror.local_root) == self.remote
        self.result: list[object] = []
        self.wrong: list[str] = []
        #: A mapping that covers the whole mirror is in the result.
        self.placed = False

    def take(self, given: object) -> None:
        """Add one mapping of the editor's, corrected."""
        mapping = given if isinstance(given, dict) else {}
        local, remote = mapping.get("localRoot"), mapping.get("remoteRoot")
        if not (isinstance(local, str) and isinstance(remote, str) and local and remote):
            self.result.append(given)
            return
        expanded = _plain(_expand(local, self.mirror))
        if expanded != local:
            mapping = {**mapping, "localRoot": expanded}
        below, above = self.mirror.below(expanded), self.mirror.above(expanded)
        if below is not None:
            self._inside(mapping, remote, below)
        elif above is not None:
            self._around(mapping, remote, above)
        else:
            self.result.append(mapping)

    def put(self, local: str, remote: str) -> None:
        """Add a mapping of the mirror's."""
        mapping = {"localRoot": local, "remoteRoot": remote}
        if mapping not in self.result:
            self.result.append(mapping)
        self.placed = True

    def _inside(self, mapping: dict[str, str], remote: str, below: Parts) -> None:
        if remote == ".":
            self.result.append({**mapping, "remoteRoot": self._remote_of(mapping, below)})
        elif self._agrees(remote, below) or self._leads_out(remote, below):
            self.result.append(mapping)
        else:
            self.wrong.append(remote)
            if not below:
                self.put(mapping["localRoot"], self.mirror.remote_root)
            return
        self.placed = self.placed or not below

    def _around(self, mapping: dict[str, str], remote: str, above: Parts) -> None:
        """A mapping of a directory above the mirror's, such as a home or a workspace."""
        parts = parts_of(remote)
        rest = rest_of(parts, self.remote)
        if rest is not None and self.mirror.fold(rest) == above:
            self.result.append(mapping)
            self.placed = True
            return
        self.wrong.append(remote)
        if not self.placed:
            self.put(self.mirror.local_root, self.mirror.remote_root)
        if parts is not None and rest is None and rest_of(self.remote, parts) is None:
            # Apart from the remote root: what lies beside the mirror may well be there.
            self.result.append(mapping)

    def _remote_of(self, mapping: dict[str, str], below: Parts) -> str:
        # The words as the editor wrote them: `below` may have lost its case.
        words = (parts_of(mapping["localRoot"]) or ())[-len(below) :] if below else ()
        return posixpath.join(self.mirror.remote_root, *words)

    def _agrees(self, remote: str, below: Parts) -> bool:
        rest = rest_of(self.remote, parts_of(remote))
        return rest is not None and self.mirror.fold(rest) == below

    def _leads_out(self, remote: str, below: Parts) -> bool:
        parts = parts_of(remote)
        if parts is None or not below or rest_of(self.remote, parts) is not None:
            return False
        # The same layout under another root is an old remote root, not another place.
        return self.mirror.fold(parts[-len(below) :]) != below


def _expand(local: str, mirror: MappedRoots) -> str:
    if local == "~" or local.startswith(("~/", "~\\")):
        return str(Path.home()) + local[1:]
    found = _WORKSPACE.match(local)
    if found is None:
        return local
    rest = local[found.end() :].strip("\\/")
    # The mirror may be all of the workspace, or the directory in it that `rest` names.
    root = mirror.local_root.rstrip("\\/")
    if not rest or root.replace("\\", "/").endswith("/" + rest.replace("\\", "/")):
        return mirror.local_root
    return f"{root}/{rest}"


@lru_cache(maxsize=1024)
def _resolved(path: str) -> tuple[str, ...]:
    """The path with the symlinks of its directory resolved; with its own, too.

    Nothing below an sshfs is looked at: it may hang, and this is called in the event loop."""
    if not path.startswith("/"):
        return ()
    parent, name = posixpath.split(posixpath.normpath(path))
    try:
        if kind_of(posixpath.join(parent, name)) == _SSHFS:
            return ()
        return posixpath.join(os.path.realpath(parent), name), os.path.realpath(path)
    except (OSError, ValueError):  # no path of a file: a NUL, half a character
        return ()


def _plain(path: str) -> str:
    """Without `..`, as of a directory beside the workspace: pydevd compares the text."""
    beside = path.startswith("/") and ".." in path.split("/")
    return posixpath.normpath(path) if beside else path


def _is_windows(path: str) -> bool:
    return _DRIVE.match(path) is not None or path.startswith("\\\\")


def parts_of(path: str) -> Parts | None:
    """The components of an absolute path, without `.`, `..` and doubled slashes; or None."""
    if _is_windows(path):
        drive, rest = ntpath.splitdrive(ntpath.normpath(path))
        return (drive, *filter(None, rest.split("\\")))
    if not path.startswith("/"):
        return None
    return tuple(filter(None, posixpath.normpath(path).split("/")))


def rest_of(root: Parts | None, parts: Parts | None) -> Parts | None:
    """The part of `parts` below `root`; None if it is not below or at it."""
    if root is None or parts is None or parts[: len(root)] != root:
        return None
    return parts[len(root) :]
