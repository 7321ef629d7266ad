"""The Pythons of several nodes: which are whose."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from tunnelkit.messages.agent_calls import PythonInfo
from tunnelkit.session.handlers.job_processes import find_pythons
from tunnelkit.session.session import Session


def python(node: str, pid: int) -> PythonInfo:
    return {
        "pid": pid, "node": node, "rank": None, "local": 0, "run": "tag", "ancestors": [],
        "command": ["python"], "python": "python", "launcher": False, "why_not": "",
    }  # fmt: skip


def session(*nodes: str, sees: Callable[[str], list[PythonInfo]], debugged: str) -> Session:
    """A session on these nodes. sees: what the agent of a node finds there."""

    class Agent:
        def __init__(self, node: str) -> None:
            self._node = node

        async def call(self, name: str, **params: object) -> object:
            return sees(self._node)

    async def on(node: str) -> Agent:
        return Agent(node)

    target = SimpleNamespace(who=SimpleNamespace(node=debugged), debugged_pid=7, over=False)
    run = SimpleNamespace(targets=[target])
    loop = SimpleNamespace(loop=SimpleNamespace(first=lambda: run))
    agents = SimpleNamespace(nodes=list(nodes), node=nodes[0], pid=1, on=on)
    loops = SimpleNamespace(all=lambda: [loop])
    return cast(Session, SimpleNamespace(agents=agents, loops=loops))


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (("llama-3.1-sft-0", "llama-3.1-sft-1"), ("llama-3.1-sft-0", "llama-3.1-sft-1")),
        (("n1", "n2"), ("n1.site", "n2.site")),
        (("n1.site", "n2.site"), ("n1", "n2")),
    ],
)
async def test_each_node_has_its_own(nodes: tuple[str, str], said: tuple[str, str]) -> None:
    """Also where agents call a host by another form of its name."""
    names = dict(zip(nodes, said, strict=True))
    mine = session(*nodes, sees=lambda node: [python(names[node], 7)], debugged=said[1])
    found = (await find_pythons(mine)).processes
    assert [(one["node"], bool(one["why_not"])) for one in found] == [
        (nodes[0], False),
        (nodes[1], True),
    ]


async def test_nodes_on_one_host_do_not_share_what_runs_there() -> None:
    both = [python("n1", 7), python("n2", 8)]
    mine = session("n1", "n2", sees=lambda node: [one.copy() for one in both], debugged="")
    found = (await find_pythons(mine)).processes
    assert [(one["node"], one["pid"]) for one in found] == [("n1", 7), ("n2", 8)]
