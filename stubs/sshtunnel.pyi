"""What tk and its benches use of sshtunnel, which has no types of its own."""

import logging
import socket
import socketserver

from paramiko import Transport

class BaseSSHTunnelForwarderError(Exception): ...

class _ForwardHandler(socketserver.BaseRequestHandler):
    remote_address: tuple[str, int]

class _ThreadingForwardServer:
    request_queue_size: int
    daemon_threads: bool
    socket: socket.socket

    def verify_request(self, request: socket.socket, client_address: tuple[str, int]) -> bool: ...
    def shutdown_request(self, request: socket.socket) -> None: ...
    def close_request(self, request: socket.socket) -> None: ...
    def shutdown(self) -> None: ...

class SSHTunnelForwarder:
    is_alive: bool
    local_bind_port: int
    _transport: Transport

    def __init__(
        self,
        ssh_address_or_host: tuple[str, int],
        ssh_config_file: str | None,
        *,
        ssh_username: str | None = None,
        ssh_pkey: str | None = None,
        allow_agent: bool,
        host_pkey_directories: list[str] | None = None,
        local_bind_address: tuple[str, int],
        remote_bind_address: tuple[str, int],
        logger: logging.Logger | None = None,
    ) -> None: ...
    def start(self) -> None: ...
    def stop(self, force: bool = False) -> None: ...
