"""A debugger in a Python process: debugpy's libraries are among the files that it has mapped; and
whether an editor has connected to it."""

import re
from typing import Dict, Set, Tuple

from tunnelkit.probe import proc

#: debugpy's compiled parts; a Python package without them shows in the command line alone.
_MAPPED = re.compile(r"/(?:debugpy|_?pydevd_[a-z_]+)[/.]")
_STARTED = re.compile(r"(?:^|[ /])(?:debugpy|pydevd)(?:$|[ /.])")
#: `--listen [HOST:]PORT` of a program that is to wait for its editor.
_LISTENS = re.compile(r" --listen[ =](?:\S*:)?([0-9]{1,5}) ")
_WAITS = " --wait-for-client "
_MOST_BYTES = 4 << 20
#: States of /proc/net/tcp.
_ESTABLISHED, _LISTEN = "01", "0A"


def loaded(pid: int, argv: str) -> str:
    """Return `debugpy` if a process has it; "" if it has not, or can't be looked at."""
    if _STARTED.search(argv):
        return "debugpy"
    mapped = proc.whole_text_of(f"/proc/{pid}/maps", _MOST_BYTES)
    return "debugpy" if _MAPPED.search(mapped) else ""


class Debuggers:
    """Debuggers of many processes. Ranks are alike: of those with the same command line and as
    many threads one is looked at, since each has thousands of mapped files."""

    def __init__(self) -> None:
        self._known: Dict[Tuple[str, int], str] = {}

    def of(self, pid: int, argv: str, threads: int) -> str:
        """Return as `loaded`."""
        key = (argv, threads)
        if key not in self._known:
            self._known[key] = loaded(pid, argv)
        return self._known[key]


def lacks_client(pid: int, argv: str) -> bool:
    """True if a program was started by `debugpy --wait-for-client`, and nobody has connected to
    the port where debugpy listens."""
    found = _LISTENS.search(argv)
    if found is None or _WAITS not in argv:
        return False
    port = int(found.group(1))
    texts = [proc.whole_text_of(f"/proc/{pid}/net/{one}", _MOST_BYTES) for one in ("tcp", "tcp6")]
    states = states_of(port, "".join(texts))
    return _LISTEN in states and _ESTABLISHED not in states


def states_of(port: int, text: str) -> Set[str]:
    """Return the states of a local port in /proc/net/tcp."""
    found = set()
    for line in text.splitlines():
        words = line.split(None, 4)
        if len(words) > 4 and words[1].rpartition(":")[2] == f"{port:04X}":
            found.add(words[3])
    return found
