"""sshtunnel's forwarder on a connection that is there.

sshtunnel by itself makes a connection, and so an authentication, for each forwarder; it
sets no TCP_NODELAY, does not pass a half close on, and its stop waits without end for
connections that hang. Its listener and its bookkeeping are used; what handles a
connection, and what ends it, is ours.

sshd sets TCP_NODELAY on its end of a connection with the first command that it runs there:
a session has run one on each host long before it forwards.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

import sshtunnel
from paramiko import Channel, SSHException

from tunnelkit.link.paramiko_link.byte_pump import BytePump
from tunnelkit.link.paramiko_link.transport import SshTransport
from tunnelkit.model import LocalForward
from tunnelkit.mux.peer_credentials import same_user

_STOP_S = 3.0
_LOG = logging.getLogger("tunnelkit.link.sshtunnel")
_LOG.addHandler(logging.NullHandler())


class _Handler(sshtunnel._ForwardHandler):
    """One accepted connection: a channel, and a pump between the two."""

    forwarder: Forwarder

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            channel = self.forwarder.reach()
        except (SSHException, EOFError, OSError) as error:
            _LOG.info("no channel to %s:%s: %s", *self.remote_address, error)
            return  # the caller closes the connection: nobody listens there
        pump = BytePump(self.request, channel, done=lambda: self.forwarder.drop(pump))
        if self.forwarder.keep(pump):
            pump.carry()
        else:
            pump.stop()
            self.request.close()


class _Server(sshtunnel._ThreadingForwardServer):
    request_queue_size = 128
    daemon_threads = True

    def verify_request(self, request: socket.socket, client_address: tuple[str, int]) -> bool:
        """True if the connection comes from this user; checked before anything is read from it."""
        return same_user(client_address, request.getsockname())

    def shutdown_request(self, request: socket.socket) -> None:
        # The pump that had the connection has closed it; its last bytes may be under way.
        self.close_request(request)


class _SharedServer(_Server):
    def verify_request(self, request: socket.socket, client_address: tuple[str, int]) -> bool:
        return True


class Forwarder(sshtunnel.SSHTunnelForwarder):
    """One LocalForward on a connection that is there. `start` and `stop` block, bounded.

    reach: makes a channel of that connection to where the forward leads.
    """

    def __init__(
        self, transport: SshTransport, forward: LocalForward, reach: Callable[[], Channel]
    ) -> None:
        self.reach = reach
        self._server_class = _SharedServer if forward.shared else _Server
        self._pumps: set[BytePump] = set()
        self._stopped = False
        self._server_list: list[_Server] = []
        self.tunnel_is_up: dict[tuple[str, int], bool] = {}
        self._lock = threading.Lock()
        super().__init__(
            ("127.0.0.1", 22),  # never used: the transport is there already
            ssh_config_file=None,
            allow_agent=False,
            host_pkey_directories=[],
            local_bind_address=("127.0.0.1", forward.bind_port),
            remote_bind_address=(forward.host, forward.port),
            logger=_LOG,
        )
        self._transport = transport

    @staticmethod
    def _consolidate_auth(*_: object, **__: object) -> tuple[str, list[object]]:
        return "", []  # nothing is authenticated here

    def _connect_to_gateway(self) -> None:
        """Only called when the connection is gone: never make another."""

    def _make_ssh_forward_handler_class(self, remote_address_: tuple[str, int]) -> type:
        return type(
            "Handler",
            (_Handler,),
            {
                "remote_address": remote_address_,
                "ssh_transport": self._transport,
                "logger": _LOG,
                "forwarder": self,
            },
        )

    def _make_ssh_forward_server_class(self, remote_address_: tuple[str, int]) -> type:
        return self._server_class

    def keep(self, pump: BytePump) -> bool:
        """Own a connection's pump until `drop`; False if it is too late for that."""
        with self._lock:
            if not self._stopped:
                self._pumps.add(pump)
            return not self._stopped

    def drop(self, pump: BytePump) -> None:
        """Give up the ownership of a pump that has ended."""
        with self._lock:
            self._pumps.discard(pump)

    def stop_listening(self) -> None:
        """Close the port; connections go on."""
        for server in self._server_list:
            stopping = threading.Thread(target=server.shutdown, daemon=True, name="tk-link stop")
            stopping.start()
            stopping.join(_STOP_S)
            server.socket.close()
        self._server_list = []
        self.tunnel_is_up = {}
        self.is_alive = False

    def _stop_transport(self, force: bool = False) -> None:
        """sshtunnel's own would close the connection that all others share, and wait for each
        of the connections carried."""
        self.stop_listening()
        with self._lock:
            self._stopped = True
            pumps = list(self._pumps)
        for pump in pumps:
            pump.stop()
        for pump in pumps:
            pump.join(_STOP_S)

    def __del__(self) -> None:
        """Nothing: the end is explicit."""
