"""Blocking client: one call to a running session, without an event loop.

`tk status` runs in shell prompts and `tk ready` before every F5. Loading asyncio
would take longer than the answer. The wire is sans-IO, so a plain socket can carry it.
Commands that stream use `control_client.connect`.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from tunnelkit.errors import ConfigError, NoSessionError, TimeoutExpired, TunnelkitError
from tunnelkit.session.runtime.control_address import reach
from tunnelkit.wire import events as ev
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.handshake import NO_ID, Hello, HelloReader, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tunnelkit.session.runtime.control_message import Request
    from tunnelkit.session.runtime.paths import SessionPaths

A = TypeVar("A")

#: Length prefix of each message of an RPC channel (mux/rpc.py).
_LENGTH = struct.Struct("!I")
_READ_BYTES = 256 * 1024
_CALL_ID = 1


def is_alive(paths: SessionPaths) -> bool:
    """True if a session of this user accepts connections at its control socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            reach(sock, paths)
        except (OSError, ConfigError):
            return False
        return True


def no_session() -> NoSessionError:
    """Return the error for a command that finds no session."""
    return NoSessionError("no session is up for this project", hint="start one: tk up [NODE]")


def session_gone() -> NoSessionError:
    """Return the error for a command whose session ended before it answered."""
    return NoSessionError(
        "the session ended before it answered", hint="`tk logs --session` shows why"
    )


def silent(waited_s: float) -> TimeoutExpired:
    """Return the error for a command whose session is there but sends nothing."""
    return TimeoutExpired(
        f"the session did not answer within {waited_s:g} s",
        hint="`tk logs --session` shows what it does; is its process stopped?",
    )


def ask(
    paths: SessionPaths,
    request: Request[A],
    *,
    silence_s: float | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> A:
    """Make a call of a session and return its answer.

    silence_s: give up after so many seconds without a byte; None: wait without limit. meanwhile:
    called while the session works.
    Raises the session's TunnelkitErrors unchanged, TimeoutExpired after `silence_s`,
    NoSessionError if there is no session or it ends meanwhile, ConfigError if another user's
    process could be listening.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(silence_s)
        try:
            reach(sock, paths)
        except OSError:
            raise no_session() from None
        try:
            return _call(sock, request, meanwhile)
        except TimeoutError:
            raise silent(silence_s or 0.0) from None
        except (OSError, ProtocolError):
            raise session_gone() from None


def _call(sock: socket.socket, request: Request[A], meanwhile: Callable[[], object] | None) -> A:
    endpoint = Endpoint(client=True)
    arrived = _greet(sock, endpoint)
    channel = endpoint.open({"type": "rpc"})
    message = {"id": _CALL_ID, "call": request.NAME, "params": request.to_json()}
    payload = json.dumps(message).encode()
    endpoint.send(channel, _LENGTH.pack(len(payload)) + payload)
    buffer = bytearray()
    while True:
        for event in endpoint.receive(arrived):
            if isinstance(event, ev.DataReceived) and event.channel == channel:
                endpoint.consume(channel, len(event.data))
                buffer += event.data
            elif isinstance(event, ev.ChannelClosed | ev.ByeReceived):
                raise ProtocolError("the session hung up")
        for text in _whole_messages(buffer):
            found = json.loads(text)
            if found.get("id") != _CALL_ID:
                continue  # a notice
            if "error" in found:
                raise TunnelkitError.from_json(found["error"])
            answer: A = found.get("result")
            return answer
        while endpoint.has_outgoing():
            sock.sendall(b"".join(endpoint.outgoing(_READ_BYTES)))
        if meanwhile is not None:
            # What fails here fails again where its result is used, and says so itself.
            with suppress(OSError):
                meanwhile()
            meanwhile = None
        arrived = _receive(sock)


def _greet(sock: socket.socket, endpoint: Endpoint) -> bytes:
    """Exchange hellos; return the bytes that came after the session's hello."""
    hello = Hello(Status.FRESH, os.urandom(16), NO_ID, 0, endpoint.window_bytes)
    sock.sendall(hello.encode())
    reader = HelloReader()
    while (peer := reader.feed(_receive(sock))) is None:
        pass
    endpoint.link_up(peer.received, peer.window)
    return reader.rest


def _whole_messages(buffer: bytearray) -> Iterator[bytes]:
    """Yield the whole messages, and remove them from the buffer."""
    while len(buffer) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
        if len(buffer) < end:
            return
        text = bytes(buffer[_LENGTH.size : end])
        del buffer[:end]
        yield text


def _receive(sock: socket.socket) -> bytes:
    data = sock.recv(_READ_BYTES)
    if not data:
        raise ProtocolError("the session hung up")
    return data
