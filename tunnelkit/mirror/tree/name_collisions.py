"""Names that one file system tells apart and another does not.

Some fold case, some Unicode's composed and decomposed letters, at either end. Two names on
the laptop that are one on the cluster are both left out, and said so. A file that only
changed its spelling is a delete and a new file like any other, with two cares: where the
cluster folds, the delete has to come first; where the laptop folds, lstat still finds the old
spelling.
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
    """What a file system holds for the same name."""

    case: bool = False
    unicode: bool = False

    def __bool__(self) -> bool:
        return self.case or self.unicode

    def key(self, path: str) -> str:
        """The same for all spellings of one path."""
        if self.case:
            path = path.casefold()
        # Folding may compose or take apart: normalize after it.
        return unicodedata.normalize("NFC", path) if self.unicode else path

    def collisions(self, paths: Iterable[str]) -> dict[str, str]:
        """{path: why it is not sent}: those with another one in their place, and all below."""
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
        """Those of `deletes` whose place one of `sends` will take: to be deleted first."""
        if not self:
            return set()
        keys = {self.key(path) for path in sends}
        return {path for path in deletes if self.key(path) in keys}

    def same_place(self, paths: Collection[str], among: Iterable[str]) -> set[str]:
        """Those of `among` that are another spelling of one of `paths`: what is known of
        them went with it."""
        if not self or not paths:
            return set()
        keys = {self.key(path) for path in paths}
        return {path for path in among if self.key(path) in keys}


#: A file system that tells all names apart.
EXACT = CaseFolding()


def set_apart(
    sends: dict[str, Entry], entries: Iterable[str], folding: CaseFolding, failed: dict[str, str]
) -> None:
    """Take out of `sends` what collides; the reasons go into `failed`, those of colliding
    paths that were sent before, too. entries: all that is mirrored."""
    found = folding.collisions(entries)
    failed.update(found)
    for path in found:
        sends.pop(path, None)


def renamed_by_case(root: str, path: str) -> bool:
    """Whether lstat finds `path` (relative to root) only because the laptop's file system
    folds names: what is there is listed under another spelling. Blocking."""
    try:
        found = os.lstat(os.path.join(root, path))
    except OSError:
        return False
    if not any(_is(root, other, found) for other in _spellings(path)):
        return False  # it tells them apart, as most do: one look was enough
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
