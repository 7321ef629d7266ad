"""What is said to sshd about a channel, by several threads."""

from __future__ import annotations

import socket
from typing import Any

import paramiko
import pytest
from paramiko import Message
from paramiko.common import cMSG_CHANNEL_CLOSE, cMSG_CHANNEL_DATA, cMSG_CHANNEL_EOF

from tunnelkit.link.paramiko_link.transport import SshTransport


def about(kind: bytes, number: int, text: str | None = None) -> Message:
    message = Message()
    message.add_byte(kind)
    message.add_int(number)
    if text is not None:
        message.add_string(text)
    return message


def test_what_comes_after_a_channels_close_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bytes] = []
    monkeypatch.setattr(
        paramiko.Transport, "_send_message", lambda self, data: said.append(data.asbytes())
    )
    near, far = socket.socketpair()
    with near, far:
        transport: Any = SshTransport(near, timeout_s=5.0)
        transport.active = True
        transport.clear_to_send.set()
        begin = [about(cMSG_CHANNEL_DATA, 7, "x"), about(cMSG_CHANNEL_CLOSE, 7)]
        # Made ready by another thread before the close, and overtaken by it.
        late = [about(cMSG_CHANNEL_EOF, 7), about(cMSG_CHANNEL_DATA, 7, "late")]
        other = about(cMSG_CHANNEL_EOF, 6)
        for message in [*begin, *late, other]:
            transport._send_user_message(message)
        assert said == [message.asbytes() for message in [*begin, other]]
        # sshd gives the number out again.
        again: Any = paramiko.Channel(0)
        again.remote_chanid = 7
        transport._channels.put(0, again)
        again.closed = True  # sshd has not answered yet
        transport._send_user_message(about(cMSG_CHANNEL_EOF, 7))
        assert said[-1] == other.asbytes()
        again.closed = False
        transport._send_user_message(about(cMSG_CHANNEL_EOF, 7))
        assert said[-1] == about(cMSG_CHANNEL_EOF, 7).asbytes()
        transport.abort()
