"""`tcp` channels: {"type": "tcp", "host": "127.0.0.1", "port": 8888}, connected from this node."""

import asyncio
import errno
import os
import socket
from typing import TYPE_CHECKING, Dict, Optional, Sequence, Tuple

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.splice import splice

if TYPE_CHECKING:
    from tunnelkit.messages.agent_calls import HostPort

_CONNECT_TIMEOUT_S = 10.0


async def serve_tcp(channel: Channel, header: Dict[str, object]) -> None:
    """Connect and carry bytes; a refused connection closes the channel with the reason."""
    host, port = str(header.get("host")), int(str(header.get("port") or 0))
    try:
        sock = await _connect_to(host, port)
    except asyncio.TimeoutError:
        channel.close({"error": f"connect to {host}:{port} timed out"})
        return
    except OSError as error:
        channel.close({"error": f"connect to {host}:{port}: {error.strerror or error}"})
        return
    await splice(sock, channel)


async def listening(params: "HostPort") -> bool:
    """RPC `tcp.listening`: does somebody accept connections at host:port, as seen from here?"""
    try:
        sock = await _connect_to(str(params["host"]), int(params["port"]))
    except (OSError, asyncio.TimeoutError):
        return False
    sock.close()
    return True


async def _connect_to(host: str, port: int) -> socket.socket:
    """A connected, non-blocking socket. Raises OSError, asyncio.TimeoutError."""
    sock = _connect_now(host, port)
    if sock is not None:
        return sock
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await asyncio.wait_for(_connect(addresses), _CONNECT_TIMEOUT_S)


def _connect_now(host: str, port: int) -> Optional[socket.socket]:
    """The usual case without a thread or a wait: this node's own IPv4 address answers at once.

    None if it is another case. Raises OSError if the connection is refused.
    """
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return None
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        # Loopback is through with the handshake when the first call returns; the second says so.
        code = sock.connect_ex((host, port))
        if code == errno.EINPROGRESS:
            code = sock.connect_ex((host, port))
    except BaseException:
        sock.close()
        raise
    if code in (0, errno.EISCONN):
        return sock
    sock.close()
    if code == errno.EALREADY:
        return None
    raise OSError(code, os.strerror(code))


async def _connect(
    addresses: "Sequence[Tuple[int, int, int, str, Tuple[object, ...]]]",
) -> socket.socket:
    failure = OSError("no address")
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, address)
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure
