"""Work in a child process with a limit: a sick driver or file server may never answer."""

import json
import os
import select
import signal
import sys
import time
from typing import Callable

_MOST_BYTES = 1 << 20


class Child:
    """A forked child that does one thing and sends its answer as JSON. Call `answer` once."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._read, write = os.pipe()
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                os.close(self._read)
                data = json.dumps(work()).encode()
                while data:
                    data = data[os.write(write, data) :]
                code = 0
            except BaseException:
                code = 1
            finally:
                os._exit(code)
        os.close(write)

    def answer(self, limit_s: float) -> object:
        """Return the answer; None if it came not within that time, or not at all.

        A child that the kernel holds is left: it ends when it can."""
        data = b""
        ends = time.monotonic() + limit_s
        try:
            while len(data) < _MOST_BYTES:
                if not select.select([self._read], [], [], max(0.0, ends - time.monotonic()))[0]:
                    return None
                piece = os.read(self._read, 65536)
                if not piece:
                    break
                data += piece
            return json.loads(data) if data else None
        except (OSError, ValueError):
            return None
        finally:
            os.close(self._read)
            self._end()

    def _end(self) -> None:
        try:
            os.kill(self._pid, signal.SIGKILL)
        except OSError:
            pass
        for _ in range(10):
            try:
                if os.waitpid(self._pid, os.WNOHANG)[0]:
                    return
            except OSError:
                return
            time.sleep(0.01)
