"""A port for each rank, there before any of them is asked for."""

from __future__ import annotations

import asyncio

from tests.support.ports import free_port
from tunnelkit.debug.dap.editor_port import Editor
from tunnelkit.debug.rank_ports import RankPorts
from tunnelkit.mux.dap_framing import encode


async def test_the_first_rank_opens_the_ports_of_all() -> None:
    served: asyncio.Queue[int | None] = asyncio.Queue()

    async def serve(editor: Editor, rank: int | None) -> None:
        served.put_nowait(rank)

    base = free_port()
    ports = RankPorts(base, serve)
    try:
        ports.open(0, 3)
        for rank in (1, 2):
            port = ports.port_of(rank)
            # Another program may have had it.
            if port is None:
                continue
            assert port == base + rank
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            # Until it has introduced itself it may be a probe.
            writer.write(encode({"seq": 1, "type": "request", "command": "initialize"}))
            async with asyncio.timeout(10):
                assert await served.get() == rank
            writer.close()
        assert ports.port_of(0) == base and ports.port_of(3) is None
        ports.open(3)
        assert ports.port_of(3) in (base + 3, None)
    finally:
        await ports.close()
    assert ports.port_of(1) is None
