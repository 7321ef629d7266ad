"""An API server that is reached through an HTTP proxy only, as the kubeconfig says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from tests.support.kube_rig import KubeProject, dev_pod, dev_project
from tests.support.tkrig import PROGRAM, line_of
from tunnelkit.lab.kube.stand_in import StandIn

__all__ = ["dev_pod", "dev_project"]

STOP = line_of(PROGRAM, "total += step")
_HOST = "api.cluster.invalid"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def http_proxy(port: int) -> AsyncIterator[tuple[int, list[str]]]:
    """A proxy that takes CONNECT to `_HOST` alone, for `port` here: its port, who was asked for."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.split()[1])
        if not head.startswith(f"CONNECT {_HOST}:"):
            writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            writer.close()
            return
        there, to_there = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_pump(reader, to_there), _pump(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


async def test_streams_find_the_way_that_kubectl_takes(pods: StandIn, project: KubeProject) -> None:
    direct = pods.kubeconfig.read_text()
    config: dict[str, Any] = json.loads(direct)
    cluster = config["clusters"][0]["cluster"]
    port = urlsplit(cluster["server"]).port
    assert port is not None
    async with http_proxy(port) as (proxy_port, asked):
        cluster["server"] = f"https://{_HOST}:6443"
        cluster["tls-server-name"] = "127.0.0.1"
        cluster["proxy-url"] = f"http://127.0.0.1:{proxy_port}"
        pods.kubeconfig.write_text(json.dumps(config))
        status = await project.up("ml-dev-env")
        assert status["state"] == "ready" and asked[0] == f"{_HOST}:6443"
        await project.loop("python", "2.py")
        await project.ready()
        editor, _, frame = await project.f5_to_stop(STOP)
        assert await editor.evaluate("total + 1000", frame) == "1000"
        found = (await project.tk("doctor", "--json", code=None)).out
        assert "streams by kubectl exec" in found
        await project.tk("down")
    # The fixture's own requests go the way that they went before.
    pods.kubeconfig.write_text(direct)
