"""Looks at the cluster's file system, in a process of its own, and says when it has changed.

The lab's login and nodes share this machine's disk and clock, so what is seen here is what the
node sees, and the times (CLOCK_MONOTONIC, nanoseconds) are those of who made the edit. One JSON
object a line in, one out; `{"ready": true}` says that the looking has begun.

  {"token": TEXT, "file": PATH, "timeout_s": S}     the file begins with the text
  {"changed": LIST_FILE, "root": DIR, "timeout_s": S}   every path of the list (one JSON array of
                                                    relative paths) is another file than now
"""

from __future__ import annotations

import json
import os
import sys
import time

#: Between two looks: a twentieth of what is measured at RTT 0, and no core of its own (6 us each).
_PAUSE_S = 0.0001
_SWEEP_PAUSE_S = 0.002
_SAMPLE = 50


def _say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def _token(file: str, token: bytes, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    _say(ready=True)
    while time.monotonic() < end:
        try:
            fd = os.open(file, os.O_RDONLY)
        except OSError:
            time.sleep(_PAUSE_S)
            continue
        found = os.read(fd, len(token))
        now = time.monotonic_ns()
        os.close(fd)
        if found == token:
            _say(seen_ns=now)
            return
        time.sleep(_PAUSE_S)
    _say(error=f"{file}: not within {timeout_s:g} s")


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino, info.st_size


def _is_new(path: str, before: tuple[int, int, int] | None) -> bool:
    return _mark(path) not in (None, before)


def _changed(root: str, names: list[str], timeout_s: float) -> None:
    """The first and the last moment: a sample is looked at all the time, and the rest in its
    order, each until it has changed."""
    paths = [os.path.join(root, name) for name in names]
    before = {path: _mark(path) for path in paths}
    sample = paths[:: max(1, len(paths) // _SAMPLE)]
    first_ns = 0
    position = 0
    end = time.monotonic() + timeout_s
    _say(ready=True)
    while time.monotonic() < end:
        if not first_ns and any(_mark(path) != before[path] for path in sample):
            first_ns = time.monotonic_ns()
        while position < len(paths) and _mark(paths[position]) not in (
            None,
            before[paths[position]],
        ):
            position += 1
        if position == len(paths):
            last_ns = time.monotonic_ns()
            _say(first_ns=first_ns or last_ns, seen_ns=last_ns)
            return
        time.sleep(_SWEEP_PAUSE_S)
    _say(error=f"{paths[position]}: not within {timeout_s:g} s")


def main() -> None:
    for line in sys.stdin:
        wish = json.loads(line)
        if "token" in wish:
            _token(wish["file"], wish["token"].encode(), wish["timeout_s"])
        else:
            with open(wish["changed"], encoding="utf-8") as stream:
                names = json.load(stream)
            _changed(wish["root"], names, wish["timeout_s"])


if __name__ == "__main__":
    main()
