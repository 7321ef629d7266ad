"""The GPUs of this node for as long as somebody looks, read in one child process."""

import json
import os
import select
import signal
import sys
import time
from typing import Dict, Iterator, List

from tunnelkit.probe.gpu import watch
from tunnelkit.probe.gpu.record import GpuRecord

_PERIOD_S, _SMI_PERIOD_S = 0.5, 10.0
_MOST_BYTES = 1 << 20
_NOT_YET = "the driver has not answered yet"


class GpuStream:
    """Reads in a forked child. The driver may never answer; then the child is left behind."""

    def __init__(self, period_s: float) -> None:
        self._read, write = os.pipe()
        sys.stdout.flush()
        self._parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                os.close(self._read)
                _send(write, period_s)
                code = 0
            except BaseException:
                code = 1
            finally:
                os._exit(code)
        os.close(write)
        self._limit_s = period_s + watch.LIMIT_S + 1.0
        self._heard_s = time.monotonic()
        self._buffer = b""
        self._latest: Dict[str, object] = watch.none_seen("")
        self._over = self._has_answered = False

    def first(self, limit_s: float) -> Dict[str, object]:
        """Wait so long for the first answer; return it, or that there is none yet."""
        ends_s = time.monotonic() + limit_s
        answer = self.latest()
        while not (self._has_answered or self._over):
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                self._latest = watch.none_seen(_NOT_YET)
                return self._latest
            select.select([self._read], [], [], left_s)
            answer = self.latest()
        return answer

    def latest(self) -> Dict[str, object]:
        """Return the newest answer, or why there is none. Does not wait."""
        while not self._over and select.select([self._read], [], [], 0)[0]:
            piece = os.read(self._read, 65536)
            self._over = not piece
            self._buffer += piece
            if len(self._buffer) > _MOST_BYTES:
                self._over = True
        lines = self._buffer.split(b"\n")
        self._buffer = lines.pop()
        if lines:
            self._heard_s = time.monotonic()
            self._has_answered = True
            answer: object = json.loads(lines[-1])
            if isinstance(answer, dict):
                self._latest = answer
        elif not self._over and time.monotonic() - self._heard_s > self._limit_s:
            self._latest = watch.none_seen(
                f"the GPU driver gave no answer within {watch.LIMIT_S:.0f} s"
            )
        return self._latest

    def close(self) -> None:
        """End the child."""
        os.close(self._read)
        try:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, os.WNOHANG)
        except OSError:
            pass


def _send(fd: int, period_s: float) -> None:
    for answer in _answers(period_s):
        data = json.dumps(answer).encode() + b"\n"
        while data:
            data = data[os.write(fd, data) :]


def _answers(period_s: float) -> Iterator[Dict[str, object]]:
    # Imports cost CPU time: only what this node needs.
    from tunnelkit.probe.gpu import nvml

    try:
        library = nvml.Nvml()
    except nvml.NvmlError:
        yield from _without_nvml(period_s)
        return
    # The first answer does not wait for a period: `tk top --once` has no other.
    yield _found("NVML", library.window(0.0, _PERIOD_S))
    while True:
        yield _found("NVML", library.window(period_s, _PERIOD_S))


def _without_nvml(period_s: float) -> Iterator[Dict[str, object]]:
    seconds = 0.0
    while True:
        answer = watch.look(seconds)
        yield answer
        if not answer.get("gpus"):
            return
        seconds = period_s
        if answer.get("source") == "nvidia-smi":
            # Each call costs much.
            time.sleep(_SMI_PERIOD_S)


def _found(source: str, gpus: List[GpuRecord]) -> Dict[str, object]:
    return {"source": source, "error": "", "gpus": [gpu.to_json() for gpu in gpus]}
