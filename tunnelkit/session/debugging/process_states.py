"""The process of a rank that does not answer or has no debugger, as /proc of its node has it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tunnelkit.debug.ranks.sample import ProcessState

#: A line for each process: pid, the ticks of a second, wchan, and its main thread's stat.
_SCRIPT = """\
hz=$(getconf CLK_TCK || echo 100)
for pid in "$@"; do
  read -r stat < "/proc/$pid/task/$pid/stat" || continue
  wchan=0
  read -r wchan < "/proc/$pid/wchan"
  echo "$pid $hz ${wchan:-0} $stat"
done 2>/dev/null
"""
_WCHAN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
_MOST_PIDS = 1024
#: Fields of stat after the name, which may hold blanks and brackets (proc(5)).
_STATE, _USER_TICKS, _SYSTEM_TICKS = 0, 11, 12


def command(pids: Iterable[int]) -> list[str]:
    """Return the command that tells the states of these processes of its node."""
    return ["sh", "-c", _SCRIPT, "sh", *map(str, sorted(pids)[:_MOST_PIDS])]


def parse(output: bytes) -> dict[int, ProcessState]:
    """Return the states by pid; what can't be read is left out."""
    found: dict[int, ProcessState] = {}
    for line in output.decode("utf-8", "replace").splitlines()[: 2 * _MOST_PIDS]:
        before, _, after = line.partition("(")
        fields = after.rpartition(")")[2].split()
        head = before.split()
        try:
            pid, hertz = int(head[0]), int(head[1])
            ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
            letter = fields[_STATE]
        except (ValueError, IndexError):
            continue
        if len(letter) == 1 and letter.isascii() and letter.isalpha() and hertz > 0 <= ticks:
            wchan = head[2] if _WCHAN.fullmatch(head[2]) else ""
            found[pid] = ProcessState(letter, wchan, ticks / hertz)
    return found
