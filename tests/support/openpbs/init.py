"""The first process of a host: reaps orphans, and takes everything on the host with it when
whoever made the host closes our stdin, or is gone. Standard library only."""

from __future__ import annotations

import contextlib
import os
import select
import signal


def main() -> None:
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if 0 in ready and not os.read(0, 1):
            return
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    main()
