"""Packages that are installed while a debuggee, or the process that forks it, waits.

Python reads the .pth files of site-packages once, when it starts; `pip install -e` adds one.
"""

import os
import site
import sys
from typing import Dict

from .library_code import as_library

#: How site-packages and Debian's dist-packages end.
_NAME = "-packages"


@as_library
class SiteDirectories:
    """The directories for packages of this interpreter, as they are when this is made."""

    def __init__(self) -> None:
        own = site.USER_SITE if site.ENABLE_USER_SITE else None  # it need not exist yet
        # Whatever else is on sys.path, Python leaves it out.
        paths = [path for path in (*sys.path, own) if isinstance(path, str)]
        self._seen = {path: _pth_files(path) for path in paths if path.endswith(_NAME)}

    def read_new(self) -> None:
        """Do with new and changed .pth files what Python does with them at its start."""
        for path, known in self._seen.items():
            try:
                _read(path, known)
            except Exception as error:  # such a file costs no run
                print(f"tk: {path}: {error}", file=sys.stderr)


@as_library
def _read(path: str, known: Dict[str, int]) -> None:
    if path not in sys.path:
        if os.path.isdir(path):
            site.addsitedir(path)
        return
    for name, changed_ns in sorted(_pth_files(path).items()):
        if known.get(name) != changed_ns:
            site.addpackage(path, name, {*sys.path})


@as_library
def _pth_files(path: str) -> Dict[str, int]:
    """When each was changed, in ns, by its name."""
    try:
        names = os.listdir(path)
    except OSError:
        return {}
    return {name: _changed_ns(path, name) for name in names if name.endswith(".pth")}


@as_library
def _changed_ns(path: str, name: str) -> int:
    try:
        return os.stat(os.path.join(path, name)).st_ctime_ns
    except OSError:  # a symlink that leads nowhere
        return 0
