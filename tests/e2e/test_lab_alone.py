"""The lab on a machine without a network, and on one where programs take its ports."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab_fixtures import running_lab, ssh, why_no_lab
from tests.support.lab_rig import needs_lab
from tests.support.places import short_name
from tunnelkit import lab as tk_lab
from tunnelkit.errors import TunnelkitError
from tunnelkit.lab import network
from tunnelkit.lab.network import Network

pytestmark = pytest.mark.slow

_OFFLINE = """
import sys
from tests.lab_fixtures import running_lab, ssh
with running_lab() as info:
    print(info.scheduler, ssh(info, "login", "srun -n1 -w node2 hostname" if
          info.scheduler == "slurm" else "ssh node2 hostname"))
"""


@pytest.mark.root
def test_a_lab_needs_no_network_but_loopback() -> None:
    """Slurm could not even resolve the names of its own hosts there."""
    if reason := why_no_lab(netns=True):
        pytest.skip(reason)
    script = 'ip link set lo up && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script, sys.executable, _OFFLINE],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "node2" in done.stdout


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], list[Network]]]:
    """Has another program take the port of one daemon right after the lab chose it, so often."""
    chosen: list[Network] = []
    real = network.loopback
    with ExitStack() as strangers:

        def taking(what: str, times: int) -> list[Network]:
            def choose() -> Network:
                plan = real()
                chosen.append(plan)
                if len(chosen) <= times:
                    stranger = strangers.enter_context(socket.socket())
                    stranger.bind(_place(plan, what))
                    stranger.listen()
                return plan

            monkeypatch.setattr(network, "loopback", choose)
            return chosen

        yield taking


def _place(plan: Network, what: str) -> tuple[str, int]:
    if what == "proxy":
        return plan.proxy
    if what == "sshd":
        return plan.address["node1"], plan.ssh_port["node1"]
    host = "login" if what == "slurmctld" else "node2"
    return plan.slurm_address[host], plan.slurm_port[host]


@needs_lab
@pytest.mark.parametrize("what", ["proxy", "sshd", "slurmctld", "slurmd"])
def test_a_port_taken_in_the_last_moment_is_chosen_again(
    what: str, plans: Callable[[str, int], list[Network]]
) -> None:
    chosen = plans(what, 1)
    slurm = what.startswith("slurm")
    with running_lab(scheduler="auto" if slurm else "none") as info:
        assert ssh(info, "node1", "echo here").strip() == "here"
        if slurm and info.scheduler != "slurm":
            pytest.skip("Slurm is not installed")
        assert len(chosen) == 2


@needs_lab
def test_where_each_port_is_taken_the_daemon_is_named_and_nothing_is_left(
    plans: Callable[[str, int], list[Network]], tmp_path: Path
) -> None:
    chosen = plans("sshd", 99)
    place = Path(f"/tmp/{short_name('p')}-{tmp_path.name[-8:]}")
    with pytest.raises(TunnelkitError, match="node1") as caught:
        tk_lab.up(place, scheduler="none")
    assert "Address already in use" in caught.value.one_line()
    assert len(chosen) == 4 and not place.exists()
