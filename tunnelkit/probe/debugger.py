"""A debugger in a Python process: debugpy's libraries are among the files that it has mapped."""

import re

from tunnelkit.probe import proc

#: debugpy's compiled parts; a Python package without them shows in the command line alone.
_MAPPED = re.compile(r"/(?:debugpy|_?pydevd_[a-z_]+)[/.]")
_STARTED = re.compile(r"(?:^|[ /])(?:debugpy|pydevd)(?:$|[ /.])")
_MOST_BYTES = 4 << 20


def loaded(pid: int, argv: str) -> str:
    """Return `debugpy` if a process has it; "" if it has not, or can't be looked at."""
    if _STARTED.search(argv):
        return "debugpy"
    mapped = proc.whole_text_of(f"/proc/{pid}/maps", _MOST_BYTES)
    return "debugpy" if _MAPPED.search(mapped) else ""
