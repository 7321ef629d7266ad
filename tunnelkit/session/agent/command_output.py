"""The output of a short command on a node, run by its agent within the job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tunnelkit.session.agent.client import AgentClient

_LIMIT_BYTES = 1 << 20
_PIECE_BYTES = 64 * 1024


async def output_of(
    agent: AgentClient,
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: bytes = b"",
    limit_bytes: int = _LIMIT_BYTES,
) -> bytes:
    """Return what the command writes to stdout, at most `limit_bytes` of it (1 MB).

    Raises TimeoutError, and TunnelkitError if there is no agent.
    """
    channel = agent.open({"type": "exec", "argv": list(argv), "env": {}})
    out = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            for at in range(0, len(stdin), _PIECE_BYTES):
                await channel.write(stdin[at : at + _PIECE_BYTES])
            channel.write_eof()
            while len(out) < limit_bytes and (data := await channel.read()):
                out += data
    finally:
        if not channel.is_over:
            channel.abort({"error": "no longer wanted"})
    return bytes(out[:limit_bytes])
