"""The server's side of HTTP/1.1 and of WebSocket frames."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import struct
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MOST_BODY_BYTES = 4 << 20
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10
PROTOCOL = "v5.channel.k8s.io"

Json = dict[str, object]


@dataclass
class Request:
    """One request. query: each key's values."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes = b""
    parts: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = self.path.strip("/").split("/")

    def first(self, key: str) -> str:
        """Return the first value of a key; "" if there is none."""
        return self.query.get(key, [""])[0]

    def json(self) -> Json:
        """Return the body, an object. Raises ValueError."""
        found = json.loads(self.body)
        if not isinstance(found, dict):
            raise ValueError("not an object")
        return found


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Read the next request. Raises OSError, EOFError, ValueError."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = [line.split(":", 1) for line in head[1:] if ":" in line]
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await _read_body(reader, headers)
    url = urllib.parse.urlsplit(target)
    query = urllib.parse.parse_qs(url.query, keep_blank_values=True)
    return Request(method, url.path, query, headers, body)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:size]
            if len(body) > _MOST_BODY_BYTES:
                raise ValueError("too large")
        await reader.readline()
        return body
    size = int(headers.get("content-length", "0"))
    if size > _MOST_BODY_BYTES:
        raise ValueError("too large")
    return await reader.readexactly(size)


async def answer(writer: asyncio.StreamWriter, code: int, found: object) -> None:
    """Send an answer in JSON."""
    body = json.dumps(found).encode()
    head = f"HTTP/1.1 {code} Answer\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


def failure(code: int, reason: str, message: str) -> Json:
    """Return a Status object."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }


def wants_upgrade(request: Request) -> bool:
    """True for a WebSocket of the protocol that is served."""
    offered = request.headers.get("sec-websocket-protocol", "").split(",")
    is_websocket = request.headers.get("upgrade", "").lower() == "websocket"
    return is_websocket and PROTOCOL in [one.strip() for one in offered]


def switch(writer: asyncio.StreamWriter, request: Request) -> None:
    """Answer an upgrade."""
    key = request.headers.get("sec-websocket-key", "").encode()
    accept = base64.b64encode(hashlib.sha1(key + _KEY).digest()).decode()  # noqa: S324 - RFC 6455
    writer.write(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n".encode()
    )


def frame(data: bytes, opcode: int = BINARY) -> bytes:
    """Return one server's frame."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 127, size)
    return head + data


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one client's frame: its opcode and its data. Raises EOFError, OSError."""
    first, second = await reader.readexactly(2)
    size = second & 127
    if size == 126:
        size = int(struct.unpack("!H", await reader.readexactly(2))[0])
    elif size == 127:
        size = int(struct.unpack("!Q", await reader.readexactly(8))[0])
    if size > 32 << 20:
        raise ConnectionError("too large")
    mask = await reader.readexactly(4) if second & 128 else b""
    data = await reader.readexactly(size)
    if mask.strip(b"\0"):
        key = (mask * (size // 4 + 1))[:size]
        data = (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
    return first & 15, data
