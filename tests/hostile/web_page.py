"""What a web page in the person's own browser can send to a port on 127.0.0.1.

A page chooses the body of a request, hardly the rest. Its process has the person's own uid.
"""

from __future__ import annotations

import json
import socket

_ATTACH = {"seq": 2, "type": "request", "command": "attach", "arguments": {}}
_INITIALIZE = {
    "seq": 1,
    "type": "request",
    "command": "initialize",
    "arguments": {"adapterID": "x", "clientName": "a page"},
}


def _dap(message: object) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def _post(body: bytes) -> bytes:
    """As a browser sends `fetch(url, {method: "POST", mode: "no-cors", body})`."""
    return (
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive\r\n"
        b"Content-Length: %d\r\nContent-Type: text/plain;charset=UTF-8\r\n"
        b"Origin: https://evil.example\r\nSec-Fetch-Mode: no-cors\r\n\r\n%s" % (len(body), body)
    )


#: Each is one connection's bytes, by name.
REQUESTS: dict[str, bytes] = {
    "a POST whose body is one message": _post(json.dumps(_ATTACH).encode()),
    "a POST whose body is a whole session": _post(_dap(_INITIALIZE) + _dap(_ATTACH)),
    "a GET": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a WebSocket": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n",
    "a hello of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 512 + b"\r\n\r\n",
    "an attach that nothing introduced": _dap(_ATTACH),
    "a message that is no object": _dap([1]),
}


def send(port: int, data: bytes) -> bytes:
    """One connection to 127.0.0.1:`port`: send, then read to its end. Raises TimeoutError if
    the other side keeps it open."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        try:
            sock.sendall(data)
            answer = b""
            while chunk := sock.recv(65536):
                answer += chunk
        except ConnectionError:
            return b""
        return answer
