"""Threads: how long each ran and waited for a CPU, and what the busiest did, by samples."""

import os
import time
from typing import Callable, Dict, Iterable, List, Tuple

from tunnelkit.probe import proc, waits

#: The busiest; their states are sampled.
MOST = 64
_PERIOD_S = 0.1
#: The sampling's share of a core; more threads are sampled less often.
_SHARE = 0.0025
_CALLS_EVERY = 8


def run_and_wait(pids: Iterable[int], most: int = 8192) -> Dict[Tuple[int, int], Tuple[int, int]]:
    """Return for each thread how long it ran, and how long it waited for a CPU, in ns."""
    found: Dict[Tuple[int, int], Tuple[int, int]] = {}
    for pid in pids:
        try:
            directory = os.open(f"/proc/{pid}/task", os.O_RDONLY)
        except OSError:
            continue
        try:
            for name in os.listdir(directory):
                if len(found) >= most:
                    return found
                # Relative to the directory: a path from / costs the kernel twice as much.
                words = _bytes_of(name + "/schedstat", directory).split()
                if len(words) >= 2:
                    found[pid, int(name)] = (int(words[0]), int(words[1]))
        except OSError:
            continue
        finally:
            os.close(directory)
    return found


def busiest(
    pids: Iterable[int],
    before: Dict[Tuple[int, int], Tuple[int, int]],
    now: Dict[Tuple[int, int], Tuple[int, int]],
) -> List[Tuple[int, int]]:
    """Return the threads to sample: those that want a CPU most, then main threads, then others.

    before, now: of processes that run."""

    def spent(key: Tuple[int, int]) -> int:
        run, wait = now[key]
        run_0, wait_0 = before.get(key, (run, wait))
        return run + wait - run_0 - wait_0

    wanting = [key for key in sorted(now, key=spent, reverse=True) if spent(key) > 5_000_000]
    chosen = dict.fromkeys([*wanting[:MOST], *((pid, pid) for pid in pids)])
    for pid in pids:
        if len(chosen) >= MOST:
            break
        chosen.update(dict.fromkeys((pid, tid) for tid in proc.numbers_in(f"/proc/{pid}/task")))
    return list(chosen)[:MOST]


class Sampled:
    """One thread, in counts of samples. waits: by word, of those in S or D."""

    __slots__ = ("_base", "_call", "_stat", "_wchan", "key", "states", "waits", "wchans")

    def __init__(self, key: Tuple[int, int]) -> None:
        self.key = key
        self.states: Dict[str, int] = {}
        self.waits: Dict[str, int] = {}
        self.wchans: Dict[str, int] = {}
        self._base = f"/proc/{key[0]}/task/{key[1]}"
        self._stat = _opened(f"{self._base}/stat")
        self._wchan = _opened(f"{self._base}/wchan")
        self._call = _opened(f"{self._base}/syscall")

    def sample(self, with_call: bool) -> None:
        """Look once. with_call: also at the system call, which costs more."""
        state = proc.stat_fields(_read(self._stat))[:1]
        if not state:
            return
        self.states[state[0]] = self.states.get(state[0], 0) + 1
        if state[0] not in "SDTt":
            return
        name = _read(self._wchan).strip()
        word = waits.by_function(name)
        if with_call:
            call = waits.by_call(_read(self._call))
            # "read" may be of a pipe, a terminal or a disk: there the function says more.
            if not (word == "terminal" or (word and call in ("", "read", "write"))):
                word = call or word
            self.waits[word or "unknown"] = self.waits.get(word or "unknown", 0) + 1
        if name and name != "0" and (name in self.wchans or len(self.wchans) < 12):
            self.wchans[name] = self.wchans.get(name, 0) + 1

    @property
    def name(self) -> str:
        """The thread's name."""
        return proc.text_of(f"{self._base}/comm", 64).strip()

    def close(self) -> None:
        """Close its files."""
        for fd in (self._stat, self._wchan, self._call):
            if fd >= 0:
                os.close(fd)


def sample_until(
    threads: List[Sampled], end_s: float, between: Callable[[], object] = lambda: None
) -> int:
    """Sample until that time of the monotonic clock; return how often. between: called after each
    round."""
    rounds = 0
    while True:
        spent = time.process_time()
        for one in threads:
            one.sample(rounds % _CALLS_EVERY == 0)
        rounds += 1
        pause = max(_PERIOD_S, (time.process_time() - spent) / _SHARE)
        between()
        if time.monotonic() + pause >= end_s:
            time.sleep(max(0.0, end_s - time.monotonic()))
            return rounds
        time.sleep(pause)


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _read(fd: int) -> str:
    if fd < 0:
        return ""
    try:
        return os.pread(fd, 1024, 0).decode("utf-8", "replace")
    except OSError:
        return ""


def _bytes_of(name: str, directory: int) -> bytes:
    try:
        fd = os.open(name, os.O_RDONLY, dir_fd=directory)
    except OSError:
        return b""
    try:
        return os.read(fd, 128)
    except OSError:
        return b""
    finally:
        os.close(fd)
