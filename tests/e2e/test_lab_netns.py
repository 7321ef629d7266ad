"""The lab in network namespaces: the laptop truly can't reach a node."""

from __future__ import annotations

import subprocess

import pytest

from tests.lab_fixtures import running_lab, ssh, ssh_argv, why_no_lab
from tests.support.lab_rig import say_to
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo


@pytest.mark.root
def test_netns_laptop_reaches_login_only(netns_lab: LabInfo) -> None:
    assert ssh(netns_lab, "node1", "echo $TK_LAB_HOST; hostname").split() == ["node1", "node1"]
    for node in ("10.213.2.11", "10.213.2.12", "10.213.2.1"):
        dial = f"import socket; socket.create_connection(('{node}', 22), 3)"
        argv = [*netns_lab.enter, "python3", "-c", dial]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode != 0, f"the laptop reaches {node}"
        assert "unreachable" in done.stderr


@pytest.mark.root
def test_netns_runs_jobs_across_nodes_that_know_each_other(netns_lab: LabInfo) -> None:
    if netns_lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    out = ssh(netns_lab, "login", "srun -N2 -n2 sh -c 'hostname; getent hosts node2'")
    assert {"node1", "node2", "10.213.2.12"} <= set(out.split())


@pytest.mark.root
def test_netns_link_down_is_a_network_fault_that_connections_survive(netns_lab: LabInfo) -> None:
    with subprocess.Popen(
        [*ssh_argv(netns_lab, "node1"), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cat:
        assert cat.stdin and cat.stdout
        try:
            say_to(cat, b"one\n")
            assert cat.stdout.readline() == b"one\n"
            tk_lab.link_down(netns_lab.dir)
            argv = [*ssh_argv(netns_lab, "login"), "true"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
            assert "unreachable" in done.stderr
            say_to(cat, b"two\n")
            tk_lab.link_up(netns_lab.dir)
            assert cat.stdout.readline() == b"two\n"
            cat.stdin.close()
            assert cat.wait(timeout=20) == 0
        finally:
            cat.kill()
            tk_lab.link_up(netns_lab.dir)


@pytest.mark.root
def test_netns_adds_nothing_here_and_leaves_no_namespace() -> None:
    if reason := why_no_lab(netns=True):
        pytest.skip(reason)

    def here() -> str:
        argv = ["sh", "-c", "ip -br link; ip route; ip netns"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    before = here()
    with running_lab(flavour="netns", scheduler="none") as info:
        during = {line for line in here().splitlines() if not line.startswith("tk")}
        assert during <= set(before.splitlines())
        tk_lab.down(info.dir)
        assert here() == before
