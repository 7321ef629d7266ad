"""Names that differ on one file system and are equal on another.

Some file systems fold case, some Unicode's composed and decomposed letters, on the laptop or the
cluster. Two names on the laptop that are one on the cluster are both left out and reported. A file
that only changed its spelling is deleted and sent again like any other, with two precautions: if
the cluster folds names, the delete comes first; if the laptop folds names, lstat still finds the
old spelling.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tunnelkit.mirror.api import name_paths
from tunnelkit.mirror.tree.paths import parents
from tunnelkit.mirror.tree.scanner import Entry


@dataclass(frozen=True, slots=True)
class CaseFolding:
    """The kinds of names that a file system takes for equal."""

    case: bool = False
    unicode: bool = False

    def __bool__(self) -> bool:
        return self.case or self.unicode

    def key(self, path: str) -> str:
        """Return a key that is the same for all spellings of one path."""
        if self.case:
            path = path.casefold()
        # Folding may compose or take apart: normalize after it.
        return unicodedata.normalize("NFC", path) if self.unicode else path

    def collisions(self, paths: Iterable[str]) -> dict[str, str]:
        """Return {path: reason} of the paths that can't be sent.

        They, or a directory above them, collide with another path.
        """
        if not self:
            return {}
        names = list(paths)
        places: dict[str, list[str]] = {}
        for path in names:
            places.setdefault(self.key(path), []).append(path)
        twins = {path: place for place in places.values() if len(place) > 1 for path in place}
        found = {}
        for path in names if twins else ():
            for one in (path, *parents(path)):
                if one in twins:
                    found[path] = self._reason(one, twins[one])
        return found

    def _reason(self, path: str, place: Iterable[str]) -> str:
        others = [other for other in place if other != path]
        what = "upper and lower case" if self.case else "composed and decomposed letters"
        return (
            f"the cluster's file system does not tell {name_paths([path])} and "
            f"{name_paths(others)} apart ({what})"
        )

    def replaced(self, deletes: Collection[str], sends: Collection[str]) -> set[str]:
        """Return those of `deletes` whose name one of `sends` will take: delete them first."""
        if not self:
            return set()
        keys = {self.key(path) for path in sends}
        return {path for path in deletes if self.key(path) in keys}

    def same_place(self, paths: Collection[str], among: Iterable[str]) -> set[str]:
        """Return those of `among` that are another spelling of one of `paths`.

        After these paths were deleted, the other spellings are gone as well.
        """
        if not self or not paths:
            return set()
        keys = {self.key(path) for path in paths}
        return {path for path in among if self.key(path) in keys}


#: A file system that folds nothing.
EXACT = CaseFolding()


def set_apart(
    sends: dict[str, Entry], entries: Iterable[str], folding: CaseFolding
) -> dict[str, str]:
    """Take colliding paths out of `sends`. Return the reasons by path.

    They include those of colliding paths that were sent before.
    entries: all mirrored paths.
    """
    found = folding.collisions(entries)
    for path in found:
        sends.pop(path, None)
    return found


def renamed_by_case(root: str, path: str) -> bool:
    """Return True if lstat finds `path` only because the laptop's file system folds names.

    The file is then listed under another spelling. Blocking.
    path: relative to root.
    """
    try:
        found = os.lstat(os.path.join(root, path))
    except OSError:
        return False
    if not any(_is(root, other, found) for other in _spellings(path)):
        return False  # it does not fold names, as most do
    base = root
    for part in path.split("/"):
        try:
            if part not in os.listdir(base):
                return True
        except OSError:
            return False
        base = os.path.join(base, part)
    return False


def _spellings(path: str) -> set[str]:
    forms = (unicodedata.normalize(form, path) for form in ("NFC", "NFD"))
    return {path.swapcase(), *forms} - {path}


def _is(root: str, path: str, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.lstat(os.path.join(root, path)), found)
    except (OSError, ValueError):
        return False
