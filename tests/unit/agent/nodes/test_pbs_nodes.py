"""The other nodes of a PBS job: which they are, and what ssh is told."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tunnelkit.agent.nodes.pbs_nodes import other_nodes, ssh_step
from tunnelkit.agent.nodes.relay_pool import job_step
from tunnelkit.agent.nodes.relay_process import RelayFailed
from tunnelkit.agent.processes.table import TAG
from tunnelkit.mux.rpc import RpcError


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The node file of the job that we are in, on node1."""
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "PBS_NODENUM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PBS_JOBID", "14.server")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    monkeypatch.setattr(socket, "gethostname", lambda: "node1.cluster")
    return tmp_path / "nodes"


@pytest.mark.parametrize(
    ("lines", "others"),
    [
        ("node1\nnode1\n", []),
        ("node1\nnode1\nnode2.cluster\nnode2.cluster\nnode3\n", ["node2.cluster", "node3"]),
        ("node2\nnode1\n", ["node2"]),
    ],
)
def test_the_other_nodes_are_told_once_each(nodes: Path, lines: str, others: list[str]) -> None:
    nodes.write_text(lines)
    assert other_nodes() == others


def test_outside_of_a_job_there_are_none(nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PBS_JOBID")
    assert other_nodes() == []


def test_a_host_that_pbs_calls_otherwise_is_known_by_its_number(
    nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.write_text("alias1\nalias2\n")
    with pytest.raises(RpcError, match="node1 is not among the nodes of its job: alias1, alias2"):
        other_nodes()
    monkeypatch.setenv("PBS_NODENUM", "0")
    assert other_nodes() == ["alias2"]


def test_nodes_that_are_not_known_are_not_passed_over(nodes: Path) -> None:
    with pytest.raises(RpcError, match=r"node1\.cluster has no list of the job's nodes"):
        other_nodes()


def test_a_step_is_ssh_that_asks_nobody(nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = job_step("node2", ["python3", "agent.zip", "relay", "x"])
    assert argv[0] == "ssh" and argv[-3:-1] == ["--", "node2"]
    assert {"-oBatchMode=yes", "-oStrictHostKeyChecking=accept-new"} < set(argv)
    for bad in ("-w", "node2,node3", "a b", ""):
        with pytest.raises(RelayFailed, match="no node's name"):
            job_step(bad, [])
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    assert job_step("node2", [])[0] == "srun"


@pytest.mark.parametrize("shell", ["sh", "bash", "csh", "tcsh", "fish", "zsh"])
def test_any_login_shell_runs_the_words(
    nodes: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/a b/it's!")
    show = 'printf "%s %s %s %s\\n" "$LD_LIBRARY_PATH" "$2" "$1" "${TK_PROCESS-none}"; cat'
    command = ssh_step("node2", ["sh", "-c", show, "sh", "!x 'y'", "\\n$HOME"], "/known")[-1]
    environment = {"PATH": "/usr/bin:/bin", TAG: "1.1"}
    done = subprocess.run(
        [found, "-c", command], input=b"the wire", capture_output=True, env=environment, check=True
    )
    assert done.stdout.decode() == "/opt/a b/it's! \\n$HOME !x 'y' none\nthe wire"
