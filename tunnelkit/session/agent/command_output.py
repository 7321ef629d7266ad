"""The output of a short command on a node, run by its agent within the job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tunnelkit.session.agent.client import AgentClient

_LIMIT_BYTES = 1 << 20


async def output_of(agent: AgentClient, argv: Sequence[str], *, timeout_s: float) -> bytes:
    """Return what the command writes to stdout, at most 1 MB of it.

    Raises TimeoutError, and TunnelkitError if there is no agent.
    """
    channel = agent.open({"type": "exec", "argv": list(argv), "env": {}})
    channel.write_eof()
    out = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            while len(out) < _LIMIT_BYTES and (data := await channel.read()):
                out += data
    finally:
        if not channel.is_over:
            channel.abort({"error": "no longer wanted"})
    return bytes(out[:_LIMIT_BYTES])
