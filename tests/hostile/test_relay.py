"""A relay that lies, on another node of the job: its agent stays, and the honest ones with it."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import far_relay
from tests.unit.agent.relay_rig import Rig, local_step, read_all, relay_rig
from tunnelkit.agent.debug.rank_support import visitor
from tunnelkit.agent.processes.peer_process import PeerProcess
from tunnelkit.mux.rpc import RpcError

_LOOP = 7
_FEW_FDS = 300


def lying(answers: dict[str, Any], *headers: Any, count: int = 1) -> Callable[..., list[str]]:
    """A step that runs an honest relay on every node but "liar"."""
    words = [json.dumps({"info": {}, "dialin.close": None, **answers}), str(count)]
    words += [json.dumps(header) for header in headers]

    def step(node: str, argv: list[str]) -> list[str]:
        own = [sys.executable, far_relay.__file__, *words]
        return own if node == "liar" else local_step(node, argv)

    return step


async def an_honest_one_comes(rig: Rig, port: int) -> None:
    """A debuggee of the other node is handed over, and what it says."""
    client, sock, identity = await rig.dial(port)
    while identity["node"] != "far":
        sock, identity = await rig.come.get()
    client.sendall(b"it works")
    client.shutdown(socket.SHUT_WR)
    assert await read_all(sock) == b"it works"


@pytest.mark.parametrize(
    "answer",
    [None, [], "port", {}, *({"port": port} for port in (None, "5", -1, 0, 65536, 1e999, [1]))],
)
async def test_what_is_no_port_is_the_nodes_failure(tmp_path: Path, answer: Any) -> None:
    async with relay_rig(tmp_path, step=lying({"dialin.open": answer})) as rig:
        await rig.relays.start(["far", "liar"])
        with pytest.raises(RpcError, match="no relay of the agent on liar: it named no port"):
            await rig.open(_LOOP)
        assert not rig.relays.has(_LOOP)


async def test_debuggees_with_odd_headers(tmp_path: Path) -> None:
    headers = [{"type": "debuggee", "loop": loop} for loop in (None, "7", 1e999, [7], {}, 8, -1)]
    headers += [{"type": kind, "loop": _LOOP} for kind in ("rpc", None, 5, [])]
    headers += [
        {"type": "debuggee", "loop": _LOOP, "identity": identity}
        for identity in ("x", [1], 5, [["a", "b"]])
    ]
    step = lying({"dialin.open": {"port": 9}}, *headers, count=50)
    async with relay_rig(tmp_path, step=step) as rig:
        await rig.relays.start(["far", "liar"])
        ports = await rig.open(_LOOP)
        await an_honest_one_comes(rig, ports["far"])


@pytest.mark.parametrize(
    "told",
    [
        {"pid": "x"},
        {"pid": 1e999},
        {"ancestors": 5},
        {"ancestors": ["x"]},
        {"environ": 5},
        {"environ": {"RANK": "9" * 5000, "WORLD_SIZE": "1"}},
        {"environ": {"RANK": 5, "WORLD_SIZE": []}},
        {"environ": [["RANK", "1"]]},
    ],
)
def test_an_odd_identity_is_refused_or_harmless(told: dict[str, Any]) -> None:
    try:
        who = visitor(PeerProcess.from_json(told), "liar")
    except ValueError:
        return
    assert who.rank is None or who.rank.global_rank < 2**31
    assert not who.identity.environ


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """This process, the agent's stand-in, may have few of them."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FEW_FDS, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_debuggees_without_end_leave_descriptors(
    tmp_path: Path, few_descriptors: None
) -> None:
    header = {"type": "debuggee", "loop": _LOOP, "identity": {}}
    step = lying({"dialin.open": {"port": 9}}, header, count=900)
    async with relay_rig(tmp_path, step=step) as rig:
        await rig.relays.start(["liar"])
        await rig.open(_LOOP)
        while True:
            await rig.come.get()
            if max(int(fd) for fd in os.listdir("/proc/self/fd")) >= _FEW_FDS - 70:
                break
        assert await rig.relays.info("liar") == {}
        links = [os.pipe() for _ in range(25)]
        for pair in links:
            for fd in pair:
                os.close(fd)
