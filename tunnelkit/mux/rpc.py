"""Calls and notices over one channel: u32 length, then a JSON object.

{"id": 7, "call": "loop.start", "params": {...}}       wants an answer
{"id": 7, "result": ...} or {"id": 7, "error": {...}}  the answer
{"notice": "ended", "params": {...}}                   wants none
"""

import asyncio
import itertools
import json
import struct
from typing import Any, Awaitable, Callable, Dict, Mapping, Optional, Set

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.tasks import cancel_all, start

_LENGTH = struct.Struct("!I")
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
#: Limit of calls whose answers the peer has not read: each keeps its answer here.
MAX_UNANSWERED = 4096
_MAX_TEXT_CHARS = 1000

#: Takes the params of a call, a JSON object, which the far end promises to be of one type.
Handler = Callable[[Any], Awaitable[object]]


class RpcError(Exception):
    """A call failed at the far end. data: its error object (message, hint, ...)."""

    def __init__(self, data: Dict[str, object]) -> None:
        super().__init__(str(data.get("message", "call failed")))
        self.data = data


def error(message: str, **more: object) -> RpcError:
    """An error that the caller at the far end will see."""
    return RpcError(dict(more, message=message))


class MessageReader:
    """Reads whole JSON messages from a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._buffer = bytearray()

    async def read(self) -> Optional[Dict[str, object]]:
        """Return the next message, or None at the end. Raises RpcError if malformed."""
        while True:
            if len(self._buffer) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer)
                if length > MAX_MESSAGE_BYTES:
                    raise RpcError({"message": f"message of {length} bytes is too long"})
                end = _LENGTH.size + length
                if len(self._buffer) >= end:
                    message = _decode(bytes(self._buffer[_LENGTH.size : end]))
                    del self._buffer[:end]
                    return message
            data = await self._channel.read()
            if not data:
                return None
            self._buffer += data


def encode(
    message: Mapping[str, object], default: Optional[Callable[[object], object]] = None
) -> bytes:
    """A message as bytes, with its length before it. Raises RpcError if it is too long,
    TypeError or ValueError if it is no JSON; `default` turns such values into some that are."""
    payload = json.dumps(message, default=default).encode("utf-8")
    if len(payload) > MAX_MESSAGE_BYTES:
        raise RpcError({"message": f"message of {len(payload)} bytes is too long"})
    return _LENGTH.pack(len(payload)) + payload


def _decode(payload: bytes) -> Dict[str, object]:
    try:
        message = json.loads(payload.decode("utf-8"))
    except (ValueError, RecursionError) as failure:
        raise RpcError({"message": f"bad message: {failure}"}) from None
    if not isinstance(message, dict):
        raise RpcError({"message": "bad message: no object"})
    return message


class RpcPeer:
    """One side of a call channel: it calls, and it answers calls.

    `serve` runs until the channel ends; calls still waiting then fail with RpcError."""

    def __init__(self, channel: Channel, handlers: Mapping[str, Handler]) -> None:
        self._channel = channel
        self._handlers = handlers
        self._ids = itertools.count(1)
        self._waiting: Dict[int, asyncio.Future[object]] = {}
        self._running: Set[asyncio.Task[None]] = set()
        self._over = False

    async def serve(self) -> None:
        """Answer calls and deliver answers until the channel ends or this is cancelled.

        Handlers run side by side, each begun in the order its message came; those still
        running at the end are cancelled. Raises RpcError, and aborts the channel, on bytes
        that are no message.
        """
        reader = MessageReader(self._channel)
        try:
            while True:
                message = await reader.read()
                if message is None:
                    return
                self._take(message)
        except RpcError as failure:
            self._channel.abort({"error": str(failure)})
            raise
        finally:
            self._over = True
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(RpcError({"message": "connection ended", "gone": True}))
            self._waiting.clear()
            await cancel_all(*self._running - {asyncio.current_task()})

    async def call(self, method: str, **params: object) -> Any:
        """Call the far end and return its result.

        Raises RpcError; its data has "gone" if the channel ended first: then it is not known
        if the call was carried out."""
        if self._over or self._channel.is_over:
            raise RpcError({"message": "connection ended", "gone": True})
        call_id = next(self._ids)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = future
        try:
            await self._channel.write(encode({"id": call_id, "call": method, "params": params}))
            return await future
        finally:
            self._waiting.pop(call_id, None)

    def notify(self, notice: str, **params: object) -> None:
        """Send a notice to the far end; it is not answered."""
        if not self._channel.is_over:
            self._channel.write_nowait(encode({"notice": notice, "params": params}))

    def _take(self, message: Dict[str, object]) -> None:
        if "call" in message or "notice" in message:
            if len(self._running) >= MAX_UNANSWERED:
                raise RpcError({"message": f"more than {MAX_UNANSWERED} unanswered messages"})
            start(self._running, self._answer(message))
            return
        call_id = message.get("id")
        future = self._waiting.get(call_id) if isinstance(call_id, int) else None
        if future is None or future.done():
            return
        if "error" in message:
            data = message["error"]
            future.set_exception(RpcError(data if isinstance(data, dict) else {"message": data}))
        else:
            future.set_result(message.get("result"))

    async def _answer(self, message: Dict[str, object]) -> None:
        answer = await self._outcome(message)
        if "call" in message and not self._channel.is_over:
            await self._channel.write(answer)

    async def _outcome(self, message: Dict[str, object]) -> bytes:
        """Run the handler and return its answer or error: the caller must get one of them."""
        name = str(message.get("call") or message.get("notice"))[:_MAX_TEXT_CHARS]
        handler = self._handlers.get(name)
        # Only a valid id: it is kept with the answer, whatever its size.
        call_id = message["id"] if isinstance(message.get("id"), int) else None
        data: Dict[str, object]
        try:
            if handler is None:
                raise error(f"unknown call {name!r}")
            result = await handler(message.get("params") or {})
            return encode({"id": call_id, "result": result})
        except RpcError as failure:
            data = failure.data
        except asyncio.CancelledError:
            if self._over:
                raise
            data = {"message": "cancelled"}
        except Exception as failure:
            data = {"message": f"{type(failure).__name__}: {failure}"[:_MAX_TEXT_CHARS]}
        return encode({"id": call_id, "error": data}, default=str)
