"""A login plugin that waits for its user: the error has its words."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.kube.proxy import KubectlProxy
from tunnelkit.link.kube.target import KubeTarget

#: Serves on the socket, asks its user at the first request, and waits.
_KUBECTL = """\
#!{python}
import socket, sys
path = next(one for one in sys.argv if one.startswith("--unix-socket=")).partition("=")[2]
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
print("Starting to serve on", path, flush=True)
client, _ = server.accept()
client.recv(65536)
if {asks}:
    print("To sign in, open https://microsoft.com/devicelogin", file=sys.stderr, flush=True)
client.recv(65536)
"""


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tkk", dir="/tmp") as name:
        yield Path(name)


@pytest.mark.parametrize("asks", [True, False])
async def test_who_is_waited_for_is_said(short: Path, asks: bool) -> None:
    kubectl = short / "kubectl"
    kubectl.write_text(_KUBECTL.format(python=sys.executable, asks=asks))
    kubectl.chmod(0o700)
    proxy = KubectlProxy(KubeTarget("c", "n", str(kubectl)), short, answer_s=1.0)
    with pytest.raises(ConnectionFailed, match="does not answer") as refused:
        await proxy.open()
    await proxy.close()
    cause, hint = str(refused.value.cause), str(refused.value.hint)
    assert ("open https://microsoft.com/devicelogin" in cause) is asks
    assert ("tk auth" in hint) is asks and ("VPN" in hint) is not asks
