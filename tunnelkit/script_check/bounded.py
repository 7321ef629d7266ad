"""A program's output up to a limit: one that prints without end must not fill the login host."""

import os
import select
import signal
import subprocess
import threading
import time
from typing import Dict, List, NamedTuple, Optional

#: Stands for a program that had to be ended, as `timeout` has it.
TOO_LATE = 124
_PIECE_BYTES = 65536


class Output(NamedTuple):
    """code: the exit code; TOO_LATE if it was ended. problem: why it was ended, or ""."""

    code: int
    data: bytes
    problem: str


def output_of(
    argv: List[str],
    *,
    limit_s: float,
    most_bytes: int,
    stdin: bytes = b"",
    cwd: Optional[str] = None,
    errors_too: bool = False,
    environ: Optional[Dict[str, str]] = None,
) -> Output:
    """Run a program until its output ends. Raises OSError if it can't be started.

    errors_too: stderr counts as output. At a limit all of its process group is killed."""
    child = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if errors_too else subprocess.DEVNULL,
        cwd=cwd,
        env=environ,
        start_new_session=True,
    )
    threading.Thread(target=_feed, args=(child, stdin), daemon=True).start()
    assert child.stdout is not None
    data, problem = b"", ""
    ends = time.monotonic() + limit_s
    while True:
        left = ends - time.monotonic()
        if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
            problem = f"no answer within {limit_s:g} s"
            break
        piece = os.read(child.stdout.fileno(), _PIECE_BYTES)
        if not piece:
            break
        data += piece
        if len(data) > most_bytes:
            problem = f"it printed more than {most_bytes // 1000} kB"
            break
    if problem:
        _kill(child)
        return Output(TOO_LATE, data[:most_bytes], problem)
    try:
        return Output(child.wait(max(0.1, ends - time.monotonic())), data, "")
    except subprocess.TimeoutExpired:
        _kill(child)
        return Output(TOO_LATE, data, f"no end within {limit_s:g} s")


def _feed(child: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(data)
        child.stdin.close()
    except OSError:
        pass


def _kill(child: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    child.wait()
