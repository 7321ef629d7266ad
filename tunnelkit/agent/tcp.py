"""`tcp` channels: {"type": "tcp", "host": "127.0.0.1", "port": 8888}, connected from this node."""

import asyncio
import socket
from typing import Any, Dict

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.splice import splice

_CONNECT_TIMEOUT_S = 10.0


async def serve_tcp(channel: Channel, header: Dict[str, Any]) -> None:
    """Connect and carry bytes; a refused connection closes the channel with the reason."""
    host, port = str(header.get("host")), int(header.get("port") or 0)
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        sock = await asyncio.wait_for(_connect(addresses), _CONNECT_TIMEOUT_S)
    except asyncio.TimeoutError:
        channel.close({"error": f"connect to {host}:{port} timed out"})
        return
    except OSError as error:
        channel.close({"error": f"connect to {host}:{port}: {error.strerror or error}"})
        return
    await splice(sock, channel)


async def listening(params: Dict[str, Any]) -> bool:
    """RPC `tcp.listening`: does somebody accept connections at host:port, as seen from here?"""
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(
            str(params["host"]), int(params["port"]), type=socket.SOCK_STREAM
        )
        sock = await asyncio.wait_for(_connect(addresses), _CONNECT_TIMEOUT_S)
    except (OSError, asyncio.TimeoutError):
        return False
    sock.close()
    return True


async def _connect(addresses: Any) -> socket.socket:
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
