"""`python -m tunnelkit.lab.kube DIRECTORY [--stay]`: serve until stdin ends, or TERM comes.

--stay: only TERM or INT ends it.

Prints `ready` once DIRECTORY/kubeconfig can be used.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from pathlib import Path

from tunnelkit.lab.kube.api_server import NAMESPACE, ApiServer
from tunnelkit.lab.kube.certificate import make_certificate
from tunnelkit.lab.kube.kubeconfig import write_kubeconfig

_BUFFER_BYTES = 1 << 18


async def _serve(root: Path, *, stays: bool) -> None:
    token = secrets.token_hex(16)
    api = ApiServer(root / "pods", token)
    # Any local user may connect, so all need the token, which is in a file of 0600.
    context, certificate = make_certificate(root / "certificate")
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, limit=_BUFFER_BYTES, ssl=context)
    port = server.sockets[0].getsockname()[1]
    write_kubeconfig(root / "kubeconfig", port, token, NAMESPACE, certificate)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)

    def hear() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            over.set()

    if not stays:
        loop.add_reader(0, hear)
    print("ready", flush=True)
    await over.wait()
    server.close()
    await api.close()


def main() -> int:
    """Serve; return the exit status."""
    root = Path(sys.argv[1]).absolute()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.umask(0o077)
    asyncio.run(_serve(root, stays="--stay" in sys.argv[2:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
