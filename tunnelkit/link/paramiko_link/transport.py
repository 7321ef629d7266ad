"""One ssh connection of paramiko's, made quick, quiet and sure to end.

What is changed: its socket is read in large pieces (paramiko asks for 16 bytes, then for
the rest, and a nested connection paid for that with a copy of all that was waiting);
AES-GCM goes first; the reason that sshd gives for a refused channel is kept; and the end
of the connection is an event.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import paramiko
from paramiko import Channel, ChannelException, Message, SSHException

from tunnelkit.link.shared.ciphers import has_aes

#: Bytes on their way on one channel: throughput is at most this per round trip.
WINDOW_BYTES = 8 << 20
#: sshd sends no larger ones; asking for more than its default spares packets.
PACKET_BYTES = 1 << 17
_TCP_READ_BYTES = 1 << 16
_CHANNEL_READ_BYTES = 1 << 20
#: paramiko looks up from a read this often; `abort` wakes it at once.
_IDLE_READ_S = 5.0
#: Of all sshd's answers to a refused channel, the one that says "by rule".
PROHIBITED = 1

#: Messages that begin with sshd's number of a channel (RFC 4254): from WINDOW_ADJUST to FAILURE.
_OF_A_CHANNEL = range(93, 101)

_LOGGER = "tunnelkit.link.paramiko"
logging.getLogger(_LOGGER).addHandler(logging.NullHandler())


if TYPE_CHECKING:

    class _Channel(Channel):
        def _unlink(self) -> None: ...

    class _Channels(Protocol):
        def values(self) -> list[_Channel]: ...
        def delete(self, chanid: int) -> None: ...

    class _Transport(paramiko.Transport):
        """paramiko's own, with the names that its types leave out."""

        _handler_table: dict[int, Callable[[Message], None]]
        _channels: _Channels

        def __init__(
            self, sock: BufferedSocket, default_window_size: int, default_max_packet_size: int
        ) -> None: ...
        def _send_user_message(self, data: Message) -> None: ...
        def _send_message(self, data: Message) -> None: ...
else:
    _Transport = paramiko.Transport


class AuthRefused(ChannelException):
    """A channel that sshd refused, with its own words, which paramiko drops."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class BufferedSocket:
    """A TCP socket, or a channel through another host, as paramiko's transport wants it."""

    def __init__(self, sock: socket.socket | Channel) -> None:
        self._sock = sock
        self._read_bytes = _CHANNEL_READ_BYTES if isinstance(sock, Channel) else _TCP_READ_BYTES
        self._data = b""
        self._at = 0
        self._timeout_s: float | None = None
        self._closed = False

    def recv(self, size: int) -> bytes:
        """Return at most `size` bytes; b"" at the end."""
        if self._at == len(self._data):
            self._data, self._at = self._sock.recv(self._read_bytes), 0
        piece = self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def send(self, data: bytes) -> int:
        """Send a part of `data`; return its length in bytes."""
        return self._sock.send(data)

    def settimeout(self, timeout: float | None) -> None:
        """Limit each read and write to `timeout` seconds; None waits without end."""
        self._timeout_s = timeout
        self._sock.settimeout(timeout)

    def gettimeout(self) -> float | None:
        """Return the limit of `settimeout`."""
        return self._timeout_s

    def getpeername(self) -> tuple[object, ...] | str:
        """Return the address of the other end. Raises OSError once it is closed."""
        return self._sock.getpeername()

    def close(self) -> None:
        """Ends a read or write that is under way, which closing alone would not."""
        self._closed = True
        if isinstance(self._sock, socket.socket):
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(Exception):  # a channel whose transport is gone
            self._sock.close()


class SshTransport(_Transport):
    """A connection to one host. `ended` is called in its thread when it is over."""

    def __init__(self, sock: socket.socket | Channel, *, timeout_s: float) -> None:
        self.ended: Callable[[], None] = lambda: None
        self.heard_at = time.monotonic()
        #: Once it is known that sshd there lets us forward.
        self.may_forward = False
        self._buffered = BufferedSocket(sock)
        self._opening = threading.local()
        #: sshd's numbers of channels that we have closed; it gives them out again
        self._closed: set[int] = set()
        super().__init__(
            self._buffered,
            default_window_size=WINDOW_BYTES,
            default_max_packet_size=PACKET_BYTES,
        )
        self.daemon = True
        self.name = "tk-link transport"
        self.banner_timeout = timeout_s
        self.handshake_timeout = timeout_s
        self.set_log_channel(_LOGGER)
        self._handler_table[paramiko.common.MSG_CHANNEL_OPEN_FAILURE] = self._channel_refused

    def prefer(self, *, key_types: list[str], ciphers: str) -> None:
        """Order what is offered. ciphers: the list in ssh_config, "" where it has none."""
        options = self.get_security_options()
        known = [kind for kind in key_types if kind in options.key_types]
        options.key_types = [*known, *(kind for kind in options.key_types if kind not in known)]
        allowed = [name for name in ciphers.split(",") if name in options.ciphers]
        if allowed and ciphers[0] not in "+-^":
            options.ciphers = allowed
        elif has_aes():
            quick = [name for name in options.ciphers if "gcm" in name]
            options.ciphers = [*quick, *(name for name in options.ciphers if name not in quick)]

    def settle(self) -> None:
        """Once it is authenticated: look up less often."""
        self._buffered.settimeout(_IDLE_READ_S)

    def session(self, *, timeout_s: float) -> Channel:
        """A channel for a command. Raises Refused or SSHException."""
        return self.open_channel("session", timeout=timeout_s)

    def direct(self, host: str, port: int, *, timeout_s: float) -> Channel:
        """A channel to host:port as seen from there. Raises Refused or SSHException."""
        return self.open_channel("direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=timeout_s)

    def unix(self, path: str, *, timeout_s: float) -> Channel:
        """A channel to a unix socket there. Raises Refused or SSHException."""
        self._opening.path = path
        try:
            return self.open_channel("direct-streamlocal@openssh.com", timeout=timeout_s)
        finally:
            self._opening.path = None

    def _send_user_message(self, data: Message) -> None:
        # paramiko knows no such channel: what it says to open one lacks where it leads, and
        # two reserved fields. It says that in the thread that asks for the channel, once.
        path = getattr(self._opening, "path", None)
        if path is not None:
            self._opening.path = None
            data.add_string(path)
            data.add_string("")
            data.add_int(0)
        super()._send_user_message(data)

    def _send_message(self, data: Message) -> None:
        if not self._is_late(data):
            super()._send_message(data)

    def _is_late(self, data: Message) -> bool:
        """True if the message is about a channel that is closed.

        paramiko lets another thread make it ready and then be overtaken by the close, and sshd ends
        the connection for such a message ("referred to nonexistent channel"). Messages about a
        channel come here one by one.
        """
        head = bytes(data.packet.getbuffer()[:5])
        if not head or head[0] not in _OF_A_CHANNEL:
            return False
        number = int.from_bytes(head[1:], "big")
        if head[0] == paramiko.common.MSG_CHANNEL_CLOSE:
            self._closed.add(number)
        elif number in self._closed:
            channels = self._channels.values()
            return all(one.closed or one.remote_chanid != number for one in channels)
        return False

    def dialled(self) -> str:
        """The address at the other end of the socket; "" once it is closed."""
        with contextlib.suppress(OSError):
            return str(self._buffered.getpeername()[0])
        return ""

    def ping(self) -> bool:
        """Ask for any answer, and wait for it; False once the connection is gone. For one
        thread at a time."""
        with contextlib.suppress(SSHException, OSError, EOFError):
            self.global_request("keepalive@openssh.com", wait=True)
        if self.is_active():
            self.heard_at = time.monotonic()
        return self.is_active()

    def abort(self) -> None:
        """End the connection and all its channels, at once and from any thread."""
        self.active = False
        self._buffered.close()
        self.packetizer.close()

    def run(self) -> None:
        """Serve the connection until its end; the body of the transport's thread."""
        try:
            super().run()
        finally:
            self._buffered.close()
            for channel in list(self._channels.values()):
                channel._unlink()
            self.ended()

    def why_ended(self) -> str:
        """paramiko's reason for the end, for the log and the user."""
        error = self.get_exception()
        return str(error) if error is not None and str(error) else "the connection was closed"

    def _channel_refused(self, message: Message) -> None:
        number, code, text = message.get_int(), message.get_int(), message.get_text()
        reason = {1: "administratively prohibited", 2: "connect failed"}.get(code, f"code {code}")
        with self.lock:
            self.saved_exception = AuthRefused(code, f"open failed: {reason}: {text}")
            self._channels.delete(number)
            event = self.channel_events.pop(number, None)
        if event is not None:
            event.set()
