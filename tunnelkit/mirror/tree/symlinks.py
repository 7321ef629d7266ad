"""Symlinks by policy: sent as they are, or left out. Finds those that lead out of the root.

A link is judged by its text alone. Following it could take as long as a dead file server takes to
answer, and its target on the laptop says little about the cluster.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Mapping

from tunnelkit.mirror.api import name_paths
from tunnelkit.mirror.tree.scanner import DIR, FILE, LINK, Entry

KEEP, IGNORE = "keep", "ignore"
_NAMED = 3


class SymlinkPolicy:
    """The policy of one root, and the warnings about its links."""

    def __init__(self, policy: str = KEEP) -> None:
        self._policy = policy
        #: Links that dangle on the cluster, with their targets, as of the last scan.
        self._out: dict[str, str] = {}
        self._known: dict[str, Entry] = {}
        self._told: set[str] = set()

    def judge(
        self, root: str, entries: Mapping[str, Entry], looked: Collection[str] | None = None
    ) -> None:
        """Judge the links of a scan; called in its thread.

        looked: the paths that may have changed since the last call. None: all may have.
        """
        if looked is None:
            known, out = dict[str, Entry](), dict[str, str]()
            looked = [path for path, entry in entries.items() if entry.kind == LINK]
        else:
            known, out = dict(self._known), dict(self._out)
        for path in looked:
            entry = entries.get(path)
            if entry is None or entry.kind != LINK:
                known.pop(path, None)
                out.pop(path, None)
            elif self._known.get(path) != entry:
                known[path] = entry
                self._judge(root, path, out)
            else:
                known[path] = entry
                if path in self._out:
                    out[path] = self._out[path]
        # Others read these in another thread.
        self._known, self._out = known, out

    def _judge(self, root: str, path: str, out: dict[str, str]) -> None:
        to = leads_out(root, path)
        if to is None:
            out.pop(path, None)
        else:
            out[path] = to

    @property
    def kinds(self) -> Collection[str]:
        """The kinds of entries that a scan collects."""
        return (FILE, DIR) if self._policy == IGNORE else (FILE, DIR, LINK)

    def current(self) -> tuple[str, ...]:
        """Return the warning as one line, if there is one."""
        return (_line(self._out),) if self._out else ()

    def news(self) -> list[str]:
        """Return the warning about links that were not named yet."""
        out = self._out
        new = {path: to for path, to in out.items() if path not in self._told}
        self._told = set(out)
        return [_line(new)] if new else []


def leads_out(root: str, path: str) -> str | None:
    """Return the text of a symlink that leads out of the mirrored directory.

    None if it stays inside, or is gone.
    path: relative to root.
    """
    try:
        target = os.readlink(os.path.join(root, path))
    except OSError:
        return None
    if target.startswith("/"):
        return target
    plain = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return target if plain == ".." or plain.startswith("../") else None


def _line(out: dict[str, str]) -> str:
    names = sorted(out)
    shown = name_paths([f"{path} -> {out[path]}" for path in names], limit=_NAMED)
    what = "a symlink leads" if len(names) == 1 else f"{len(names)} symlinks lead"
    return f"{what} out of the mirrored directory, to nothing on the cluster: {shown}"
