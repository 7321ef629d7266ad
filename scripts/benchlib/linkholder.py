"""One way to a node, held open by a process of its own, so that no way shares an interpreter
with another or with what measures it.

    python -m benchlib.linkholder WAY SSH_CONFIG DIRECTORY NODE LOCAL_PORT REMOTE_PORT

Prints `ready` once 127.0.0.1:LOCAL_PORT reaches the node's REMOTE_PORT. For each line on
stdin it then runs `true` on the node and prints the milliseconds that took (`-` for a way
that runs no commands); it ends with its stdin.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from tunnelkit.config.schema import LinkName
from tunnelkit.link.base import LinkSetup
from tunnelkit.link.factory import make_link
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.paramiko_link.ssh_config import ConfigFiles, HostConfig
from tunnelkit.model import Hop, LocalForward

OPENSSH, PARAMIKO, SSHTUNNEL, ASYNCSSH = "openssh", "paramiko", "sshtunnel", "asyncssh"
Command = Callable[[], Awaitable[object]] | None


@asynccontextmanager
async def _link(
    way: LinkName, config: Path, directory: Path, node: str, ports: tuple[int, int]
) -> AsyncIterator[Command]:
    """One of tunnelkit's own."""
    options = LinkOptions(login=Hop("login"), ssh_config=config)
    link = make_link(way, options, LinkSetup(control_dir=directory / f"c-{way[0]}"))
    try:
        await link.open()
        await link.forward(LocalForward(ports[0], "127.0.0.1", ports[1]), node=node)
        await link.run(["true"])  # as any session has; sshd then sets TCP_NODELAY
        await link.run(["true"], node=node)
        yield lambda: link.run(["true"], node=node)
    finally:
        await link.close()


@asynccontextmanager
async def _sshtunnel(hosts: list[HostConfig], ports: tuple[int, int]) -> AsyncIterator[Command]:
    """As its documentation nests two."""
    from sshtunnel import SSHTunnelForwarder

    login, node = hosts
    first = SSHTunnelForwarder(
        (login.hostname, login.port),
        ssh_config_file=None,
        ssh_username=login.user,
        ssh_pkey=str(login.identity_files[0]),
        allow_agent=False,
        local_bind_address=("127.0.0.1", 0),
        remote_bind_address=(node.hostname, node.port),
    )
    first.start()
    second = SSHTunnelForwarder(
        ("127.0.0.1", first.local_bind_port),
        ssh_config_file=None,
        ssh_username=node.user,
        ssh_pkey=str(node.identity_files[0]),
        allow_agent=False,
        local_bind_address=("127.0.0.1", ports[0]),
        remote_bind_address=("127.0.0.1", ports[1]),
    )
    second.start()
    try:
        yield None
    finally:
        second.stop(force=True)
        first.stop(force=True)


@asynccontextmanager
async def _asyncssh(hosts: list[HostConfig], ports: tuple[int, int]) -> AsyncIterator[Command]:
    import asyncssh

    login, node = hosts

    def how(host: HostConfig) -> dict[str, object]:
        return {
            "port": host.port,
            "username": host.user,
            "client_keys": [str(path) for path in host.identity_files],
            "known_hosts": None,  # a lab of this machine, made a moment ago
            "config": None,
            "agent_path": None,
        }

    async with (
        asyncssh.connect(login.hostname, **how(login)) as first,
        first.connect_ssh(node.hostname, **how(node)) as second,
    ):
        await second.forward_local_port("127.0.0.1", ports[0], "127.0.0.1", ports[1])
        yield lambda: second.run("true", check=True)


async def main() -> None:
    way, config, directory, node, local, remote = sys.argv[1:]
    ports = (int(local), int(remote))
    files = ConfigFiles(Path(config))
    hosts = [files.lookup("login"), files.lookup(node)]
    if way in (OPENSSH, PARAMIKO):
        held = _link(cast("LinkName", way), Path(config), Path(directory), node, ports)
    else:
        held = (_sshtunnel if way == SSHTUNNEL else _asyncssh)(hosts, ports)
    async with held as command:
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            start = time.perf_counter()
            if command is not None:
                await command()
            spent_ms = (time.perf_counter() - start) * 1e3
            print("-" if command is None else f"{spent_ms:.3f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
