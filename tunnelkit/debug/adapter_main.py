"""Runs debugpy's adapter, bound to the life and the user of the session that started it.

debugpy daemonizes its adapter by a fork of its own. A pipe from the session is
inherited through that fork; its end, however the session died, ends the adapter.

The adapter's loopback ports know no authentication: anyone on the machine who
connects can evaluate code. Here connections of other users are closed before
the adapter sees them.

    python -m tunnelkit.debug.adapter_main LIFE_FD [debugpy.adapter arguments]
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from tunnelkit.mux.peers import same_user


def _watch(life_fd: int) -> None:
    try:
        while os.read(life_fd, 1):
            pass
    finally:
        os._exit(0)


def _refuse_other_users() -> None:
    from debugpy.common import sockets

    serve: Callable[..., Any] = sockets.serve

    def guarded(name: str, handler: Callable[[socket.socket], object], *args: Any) -> Any:
        def accept(sock: socket.socket) -> None:
            if same_user(sock.getpeername(), sock.getsockname()):
                handler(sock)
            else:
                sock.close()

        return serve(name, accept, *args)

    setattr(sockets, "serve", guarded)  # noqa: B010 - its type names more parameters


def main() -> None:
    """Start debugpy.adapter in this process, watched."""
    life_fd = int(sys.argv[1])
    sys.argv = ["debugpy.adapter", *sys.argv[2:]]
    os.register_at_fork(
        after_in_child=lambda: threading.Thread(target=_watch, args=(life_fd,), daemon=True).start()
    )
    _refuse_other_users()
    runpy.run_module("debugpy.adapter", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
