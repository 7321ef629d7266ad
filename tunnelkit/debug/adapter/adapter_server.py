"""A process that forks debug adapters.

It has debugpy's adapter imported, so that one costs milliseconds instead of a quarter of a second
of the laptop's CPU.

    python -m tunnelkit.debug.adapter.adapter_server FD

FD is a unix socket to the session. Each message on it is one byte and two descriptors: a socket on
which the adapter names its own two ports, and the reading end of a pipe whose other end the
session holds. The pipe's end, however the session died, ends the adapter. The server ends with FD.

The adapter's loopback ports know no authentication: anyone on the machine who connects can
evaluate code. Here connections of other users are closed before the adapter sees them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tunnelkit.mux.peer_credentials import same_user

#: A message: one more adapter.
ONE_MORE = b"a"


def main() -> int:
    """Serve until the session hangs up."""
    control = socket.socket(fileno=int(sys.argv[1]))
    adapter_main = _prepared()
    gc.collect()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, len(ONE_MORE), 2)
        if not message:
            return 0
        child = os.fork()
        if child == 0:
            control.close()
            _be_adapter(adapter_main, *descriptors)
        for fd in descriptors:
            os.close(fd)
        # It forks once more, to be nobody's child, and is gone at once.
        os.waitpid(child, 0)


def _prepared() -> Callable[[], None]:
    """debugpy.adapter's main, with everything imported that it needs."""
    from debugpy.adapter import __main__ as adapter
    from debugpy.adapter import clients, launchers, servers, sessions  # noqa: F401
    from debugpy.common import log, sockets

    if "DEBUGPY_LOG_DIR" not in os.environ:
        # It lists all installed packages for a log that is not kept.
        log.describe_environment = lambda header: None
    serve: Callable[..., object] = sockets.serve

    def guarded(name: str, handler: Callable[[socket.socket], object], *args: object) -> object:
        def accept(sock: socket.socket) -> None:
            # debugpy's thread ends with an exception, and then nobody is accepted any more. A peer
            # that has reset its connection has no address, and takes no greeting.
            try:
                if same_user(sock.getpeername(), sock.getsockname()):
                    handler(sock)
                else:
                    sock.close()
            except Exception as error:
                log.info("A connection broke before it was served: {0}", error)
                sock.close()

        return serve(name, accept, *args)

    setattr(sockets, "serve", guarded)  # noqa: B010 - its type names more parameters
    _save_round_trips(clients, servers)
    run: Callable[[], None] = adapter.main
    return run


def _save_round_trips(clients: ModuleType, servers: ModuleType) -> None:
    """Let the adapter send on without waiting for two answers of the debuggee.

    They say nothing, and the debuggee takes requests in their order. Where a release of debugpy
    names things otherwise, its own pace stays.
    """
    if hasattr(servers.Server, "initialize") and hasattr(servers.Server, "Capabilities"):
        servers.Server.initialize = _initialize
    client = clients.Client
    if hasattr(client, "request") and not hasattr(client, "setExceptionBreakpoints_request"):
        client.setExceptionBreakpoints_request = client.message_handler(_set_exception_breakpoints)


def _initialize(self: Any, request: Any) -> None:
    """`attach` may follow at once: the adapter never looks at the answer."""

    def note(response: Any) -> None:
        if response.success:
            self.capabilities = self.Capabilities(self, response)

    self.connection.authenticate()
    self.channel.propagate(request).on_response(note)


def _set_exception_breakpoints(self: Any, request: Any) -> Any:
    """Grant plain filters while the editor configures and the program stands still.

    pydevd grants them always, by an empty answer.
    """
    filters = request.arguments.get("filters")
    options = request.arguments.get("exceptionOptions") or request.arguments.get("filterOptions")
    plain = isinstance(filters, list) and all(isinstance(one, str) for one in filters)
    if not plain or options or getattr(self, "has_started", True):
        return self.server.channel.delegate(request)
    self.server.channel.propagate(request)
    return {}


class _Answer(socket.socket):
    """The socket to the session, in place of the TCP one that debugpy would open for its answer.

    A TCP connection that is closed before it is accepted has no owner that could be checked.
    """

    def connect(self, address: object) -> None:
        """It is connected."""


def _be_adapter(run: Callable[[], None], answer_fd: int, life_fd: int) -> None:
    """Run debugpy's adapter in this process's own child: its `main` daemonizes by a fork."""
    from debugpy.common import sockets

    answer = _Answer(fileno=answer_fd)
    setattr(sockets, "create_client", lambda ipv6=False: answer)  # noqa: B010 - as in _prepared
    sys.argv = ["debugpy.adapter", "--for-server", "1", "--host", "127.0.0.1", "--port", "0"]
    os.register_at_fork(
        after_in_child=lambda: threading.Thread(target=_watch, args=(life_fd,), daemon=True).start()
    )
    code = 0
    try:
        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        code = 1
    with contextlib.suppress(ValueError, OSError):
        sys.stderr.flush()
    os._exit(code)


def _watch(life_fd: int) -> None:
    try:
        while os.read(life_fd, 1):
            pass
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
