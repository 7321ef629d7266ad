"""Packages that are installed while a debuggee, or the process that forks it, waits.

Python reads the .pth files of site-packages once, when it starts; `pip install -e` adds one.
"""

import os
import site
import sys
from typing import Dict, Optional

#: How site-packages and Debian's dist-packages end.
_NAME = "-packages"


class SiteDirectories:
    """The directories for packages of this interpreter, as they are when this is made."""

    def __init__(self) -> None:
        own = site.USER_SITE if site.ENABLE_USER_SITE else None  # it need not exist yet
        paths = [path for path in (*sys.path, own) if path is not None and path.endswith(_NAME)]
        self._seen = {path: (_changed_ns(path), _pth_files(path)) for path in paths}

    def read_new(self) -> None:
        """Do with new .pth files what Python does with them at its start."""
        for path, (before_ns, known) in self._seen.items():
            if _changed_ns(path) != before_ns:
                try:
                    _read(path, known)
                except Exception as error:  # such a file costs no run
                    print(f"tk: {path}: {error}", file=sys.stderr)


def _read(path: str, known: Dict[str, int]) -> None:
    if path not in sys.path:
        site.addsitedir(path)
        return
    for name, changed_ns in sorted(_pth_files(path).items()):
        if known.get(name) != changed_ns:
            site.addpackage(path, name, {*sys.path})


def _pth_files(path: str) -> Dict[str, int]:
    """When each was changed, in ns, by its name."""
    try:
        with os.scandir(path) as found:
            files = [one for one in found if one.name.endswith(".pth")]
        return {one.name: one.stat().st_ctime_ns for one in files}
    except OSError:
        return {}


def _changed_ns(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None
