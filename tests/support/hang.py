"""What a command that does not end is doing, for the message of a test that gave it up."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support import processes

_MOST = 60


def what_hangs(pid: int, place: Path) -> str:
    """The command's Python stacks, its children, and the processes that belong to `place`."""
    seen = processes.look()
    below = {pid}
    for _ in range(len(seen)):
        more = {one.pid for one in seen.values() if one.parent in below} - below
        if not more:
            break
        below |= more
    lines = [_line(seen[one]) for one in sorted(below) if one in seen]
    lines.append("-- at its hosts")
    near = [one for one in seen.values() if one.pid not in below and _is_of(one, str(place))]
    lines += [_line(one) for one in near[:_MOST]]
    return "\n".join([_stacks(pid), *lines])


def _is_of(one: processes.Seen, place: str) -> bool:
    return any(place in word for word in (*one.argv, *one.environ))


def _line(one: processes.Seen) -> str:
    words = " ".join(one.argv)[:160].replace("\n", " ")
    return f"{one.pid} below {one.parent}, in {_wait(one.pid)}: {words}"


def _wait(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text() or "?"
    return "?"


def _stacks(pid: int) -> str:
    here = str(Path(sys.executable).parent)
    program = shutil.which("py-spy", path=here)
    if program is None:
        return "no py-spy beside this Python: no stacks"
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [program, "dump", "--pid", str(pid)], capture_output=True, timeout=20, check=False
        )
        return (done.stdout + done.stderr).decode(errors="replace")
    return "py-spy gave no stacks"
