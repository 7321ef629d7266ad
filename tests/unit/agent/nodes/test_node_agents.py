"""Agents on other nodes: their names, their steps, and what is said if one can't be had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunnelkit.agent.links import socket_dir
from tunnelkit.agent.nodes.node_agents import NodeAgents, peer_name, peer_step
from tunnelkit.agent.processes.table import ProcessTable
from tunnelkit.mux.rpc import RpcError


def test_names_are_valid_and_differ() -> None:
    assert peer_name("tk-x-1", "node2") == "tk-x-1.node2"
    long = [f"gpu{number}.a-rather-long-site-name.example.org" for number in range(300)]
    names = {peer_name("tk-twenty-four-letters-name-abcdef12", node) for node in long}
    assert len(names) == 300
    assert all(socket_dir.check_name(name) for name in names)


def test_a_step_is_not_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    argv = peer_step("node2", ["agent", "serve", "x"])
    assert {"--jobid=42", "--overlap", "--nodelist=node2", "--mem=0"} <= set(argv)
    assert not [word for word in argv if "cpus" in word or "gres" in word]


@pytest.mark.parametrize(
    ("srun", "why"),
    [
        ("#!/bin/sh\necho 'srun: error: Invalid node' >&2\nexit 1\n", "srun: error: Invalid node"),
        ("#!/bin/sh\nexit 1\n", "its step ended at once"),
        (None, "srun: No such file or directory"),
    ],
)
async def test_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, srun: str | None, why: str
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if srun else str(tmp_path))
    if srun:
        (tmp_path / "srun").write_text(srun)
        (tmp_path / "srun").chmod(0o700)
    table = ProcessTable()
    table.start()
    peers = NodeAgents(table, "tk-x")
    fds = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with pytest.raises(RpcError) as caught:
            await peers.start({"node": "node2"})
        assert str(caught.value) == f"no agent on node2: {why}"
    await peers.stop()
    assert len(os.listdir("/proc/self/fd")) <= fds
