"""A login host that refuses: sessions, connections, forwards, or with another host key."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab_fixtures import ssh
from tests.support.login_rig import (
    LoginHost,
    debugging,
    login_host,
    project_by,
    waits_for_a_person,
)
from tests.support.ports import free_port
from tests.support.tkrig import Project, eventually
from tunnelkit.errors import ExitCode
from tunnelkit.lab import LabInfo


async def test_with_one_session_the_rest_queues_and_nothing_authenticates_again(
    slurm_lab: LabInfo,
) -> None:
    with login_host(slurm_lab, "MaxSessions 1") as host:
        async with project_by(host) as project, debugging(project):
            runs = [project.tk("run", "echo", str(number)) for number in range(4)]
            done = await asyncio.gather(*runs)
            assert [one.out for one in done] == ["0\n", "1\n", "2\n", "3\n"]
            assert host.accepted() == ["publickey"]


@pytest.mark.logins(login=2)  # the test's own: sbatch and scancel, by the lab's own sshd
async def test_with_one_session_the_files_wait_for_the_queued_node_and_not_it_for_them(
    slurm_lab: LabInfo,
) -> None:
    """An agent for files on the login host would keep its only session until the node is there."""
    with login_host(slurm_lab, "MaxSessions 1") as host:
        async with project_by(host) as project:
            words = "sbatch --parsable --exclusive -w node1 -t 10 -o /dev/null --wrap 'sleep 600'"
            other = ssh(project.lab, "login", words).strip()
            try:
                up = asyncio.create_task(project.up("node1", "--cpus", "2"))
                refused = "no file agent on the login host"
                await eventually(lambda: refused in project.session_log(), "it was tried", 60)
                asked = host.said().count("Starting session: ")
                # The queue is asked, again and again.
                await eventually(
                    lambda: host.said().count("Starting session: ") > asked + 3, "it asks", 60
                )
                assert (await project.status())["state"] == "pending"
            finally:
                ssh(project.lab, "login", f"scancel {other}")
            assert (await up)["state"] == "ready"
            assert host.accepted() == ["publickey"]


async def test_without_tcp_forwarding_all_goes_by_the_scheduler_and_the_wire(
    slurm_lab: LabInfo,
) -> None:
    with login_host(slurm_lab, "AllowTcpForwarding no", logins=2) as host:
        async with project_by(host, 'node_ssh = "auto"') as project, debugging(project):
            status = await project.status()
            assert status["route"] == "srun"
            port = free_port()
            with socket.create_server(("127.0.0.1", 0)) as far:
                words = f"{port}:{far.getsockname()[1]}"
                answer = (await project.tk("forward", words, "--json")).json
                assert (answer["route"], answer["ready"]) == ("wire", True)
            host.cut()
            await eventually(lambda: len(host.accepted()) == 2, "it is back")
            await project.tk("forward", "--cancel", str(port))


@pytest.mark.logins(2)
async def test_a_host_that_hangs_up_is_left_alone_for_longer_each_time(
    login: LoginHost, by_login: Project
) -> None:
    """MaxStartups, PerSourcePenalties: seen from outside they are the same."""
    async with debugging(by_login):
        login.stop()
        with Angry(login) as angry:
            await eventually(lambda: len(angry.came) >= 4, "it is tried again")
            pauses = [b - a for a, b in zip(angry.came, angry.came[1:], strict=False)]
            assert pauses[2] > pauses[0], pauses
            assert angry.at_once == 1, "never two connections at the same time"
            status = await by_login.status()
            assert status["state"] == "reconnecting" and status["attention"] is None
            assert "too eager" in status["detail"]
        login.start()
        await by_login.tk("auth")  # a person need not wait for the next attempt


class Angry:
    """Answers on the login host's port as an sshd does that has enough of somebody."""

    def __init__(self, host: LoginHost) -> None:
        self._address = (host.address, host.port)
        self.came: list[float] = []
        self.at_once = 0
        self._open = 0
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Angry:
        self._starting = asyncio.ensure_future(self._start())
        return self

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._hang_up, *self._address)

    async def _hang_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came.append(asyncio.get_running_loop().time())
        self._open += 1
        self.at_once = max(self.at_once, self._open)
        writer.write(b"Not allowed at this time\r\n")
        await reader.read(1)
        writer.close()
        self._open -= 1

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()


@pytest.mark.logins(node1=2)
async def test_max_startups(slurm_lab: LabInfo) -> None:
    """The real thing: sshd hangs up while others' connections stand half open."""
    with login_host(slurm_lab, "MaxStartups 1:100:1", logins=2) as host:
        async with project_by(host) as project, debugging(project):
            with socket.create_connection((host.address, host.port)) as other:
                assert other.recv(4) == b"SSH-"  # and says nothing, which counts as a start-up
                host.cut_authenticated()
                await eventually(lambda: "MaxStartups" in host.said(), "sshd refuses")
            await eventually(lambda: len(host.accepted()) == 2, "it is back")


@pytest.fixture
def other_key(login: LoginHost) -> Iterator[Path]:
    """Another host key, which nobody knows."""
    key = login.home / "other_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    yield key


@pytest.mark.logins(2)
async def test_a_changed_host_key_is_a_hard_stop_until_somebody_has_looked(
    login: LoginHost, by_login: Project, other_key: Path
) -> None:
    known = login.host_key
    async with debugging(by_login):
        login.stop()
        login.host_key = other_key
        login.start()
        words = await waits_for_a_person(by_login)
        for key in (known, other_key):
            assert fingerprint(key) in words, words
        arrived = login.arrivals()
        await asyncio.sleep(2)
        assert login.arrivals() == arrived, "nothing is tried behind the person's back"
        done = await by_login.tk("auth", code=int(ExitCode.HOST_KEY))
        assert fingerprint(other_key) in done.err
        login.write_client_config()  # the person has compared, and trusts it
        await by_login.tk("auth")


def fingerprint(key: Path) -> str:
    argv = ["ssh-keygen", "-lf", str(key.with_suffix(".pub"))]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()[1]
