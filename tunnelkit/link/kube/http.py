"""HTTP/1.1 to `kubectl proxy` on its unix socket: one request, or the upgrade to a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.link.kube.exec_protocol import PROTOCOL

_HEAD_BYTES = 1 << 16
#: Limit of one answer: a list of 500 pods with their status has 5 MB.
MOST_BODY_BYTES = 64 << 20
_BUFFER_BYTES = 1 << 18
_ACCEPT_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class HttpError(Exception):
    """The answer is no HTTP, or too large."""


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a request."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A connection that speaks WebSocket now."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def request(path: Path, method: str, target: str, body: bytes = b"") -> Response:
    """Send one request and return the answer. Raises OSError, HttpError."""
    reader, writer = await asyncio.open_unix_connection(str(path), limit=_BUFFER_BYTES)
    try:
        head = [f"{method} {target} HTTP/1.1", "Host: localhost", "Accept: application/json"]
        if body:
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        writer.write("\r\n".join([*head, "Connection: close", "\r\n"]).encode() + body)
        status, headers = await _read_head(reader)
        return Response(status, await _read_body(reader, headers))
    finally:
        await hang_up(writer)


async def upgrade(path: Path, target: str) -> Upgraded | Response:
    """Open a WebSocket; return the answer if it is refused. Raises OSError, HttpError."""
    reader, writer = await asyncio.open_unix_connection(str(path), limit=_BUFFER_BYTES)
    key = base64.b64encode(os.urandom(16))
    try:
        head = [
            f"GET {target} HTTP/1.1",
            "Host: localhost",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key.decode()}",
            f"Sec-WebSocket-Protocol: {PROTOCOL}",
        ]
        writer.write("\r\n".join([*head, "\r\n"]).encode())
        status, headers = await _read_head(reader)
        if status != 101:
            answer = Response(status, await _read_body(reader, headers))
            await hang_up(writer)
            return answer
        proof = base64.b64encode(hashlib.sha1(key + _ACCEPT_KEY).digest())  # noqa: S324 - RFC 6455
        if headers.get("sec-websocket-accept") != proof.decode():
            raise HttpError("what answers is no WebSocket server")
        if headers.get("sec-websocket-protocol") != PROTOCOL:
            raise HttpError(f"the API server does not speak {PROTOCOL}")
        return Upgraded(reader, writer)
    except BaseException:
        await hang_up(writer)
        raise


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection; what was written goes out if that needs no wait."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(0.5):
            await writer.wait_closed()
    writer.transport.abort()


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise HttpError("a head without end") from error
    except asyncio.IncompleteReadError as error:
        raise HttpError("the connection was closed before the answer") from error
    if len(head) > _HEAD_BYTES:
        raise HttpError("a head without end")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
        raise HttpError("no HTTP answer")
    pairs = (line.partition(":") for line in lines if line)
    return int(words[1][:4]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    try:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await _read_chunks(reader)
        length = headers.get("content-length")
        if length is None:
            return await _read_rest(reader)
        if not length.isdecimal() or len(length) > 12 or int(length) > MOST_BODY_BYTES:
            raise HttpError("an answer that is too large")
        return await reader.readexactly(int(length))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise HttpError("the answer was cut off") from error


async def _read_rest(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while data := await reader.read(_BUFFER_BYTES):
        body += data
        if len(body) > MOST_BODY_BYTES:
            raise HttpError("an answer that is too large")
    return bytes(body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        line = (await reader.readuntil(b"\r\n")).split(b";")[0].strip()
        try:
            size = int(line, 16)
        except ValueError as error:
            raise HttpError("no HTTP answer") from error
        if size < 0 or len(body) + size > MOST_BODY_BYTES:
            raise HttpError("an answer that is too large")
        if size == 0:
            return bytes(body)
        body += await reader.readexactly(size)
        await reader.readexactly(2)
