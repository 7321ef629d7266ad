"""What lets one in without a question: keys in an agent, certificates. And what is only shown."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.login_rig import LoginHost, login_host, project_by
from tests.support.tkrig import eventually
from tunnelkit.errors import AuthenticationFailed
from tunnelkit.lab import LabInfo
from tunnelkit.link.openssh.link import OpenSSHLink
from tunnelkit.link.options import LinkOptions
from tunnelkit.model import Hop

Connect = Callable[..., Awaitable[OpenSSHLink]]


def keygen(path: Path, *words: str) -> Path:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-f", str(path), *(words or ("-N", ""))]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=20)
    return path


async def nobody(question: str, echo: bool) -> str | None:
    raise AssertionError(f"a person was asked: {question}")


@pytest.fixture
async def connect(login: LoginHost) -> AsyncIterator[Connect]:
    """Links to the login host on which nobody may be asked; closed at the end."""
    links: list[OpenSSHLink] = []

    async def make(host: LoginHost = login, ssh: str = "ssh", **options: Any) -> OpenSSHLink:
        link = OpenSSHLink(
            LinkOptions(login=Hop("login"), ssh_config=host.client_config, ssh=ssh),
            control_dir=host.home / f"l{len(links)}",
            prompter=nobody,
            attended=lambda: False,
            **options,
        )
        links.append(link)
        await link.open()
        return link

    yield make
    for link in links:
        await link.close()


@pytest.fixture
def agent(login: LoginHost) -> Iterator[dict[str, str]]:
    """An ssh-agent with nothing in it; its environment."""
    path = login.home / "agent.s"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        while not path.exists():
            assert process.poll() is None
        yield {**os.environ, "SSH_AUTH_SOCK": str(path)}
    finally:
        process.terminate()
        process.wait()


@pytest.mark.logins(login=2)
async def test_an_agents_key_lets_a_reconnect_in_and_an_empty_agent_sends_for_a_person(
    login: LoginHost, connect: Connect, agent: dict[str, str]
) -> None:
    locked = keygen(login.home / "locked", "-N", "sesame")
    opened = login.home / "opened"
    shutil.copy(locked, opened)
    words = ["-q", "-p", "-P", "sesame", "-N", "", "-f", str(opened)]
    subprocess.run(["ssh-keygen", *words], check=True)
    login.stop()
    login.options.append(f"AuthorizedKeysFile {locked}.pub")
    login.start()
    login.write_client_config(
        f"IdentityFile {locked}\n  IdentityAgent {agent['SSH_AUTH_SOCK']}\n  IdentitiesOnly yes"
    )
    subprocess.run(["ssh-add", "-q", str(opened)], check=True, env=agent)
    link = await connect()
    login.cut()
    await link.wait_lost()
    await link.open()
    assert login.accepted() == ["publickey"] * 2
    login.refusals = 1  # the key is still named, and tried in vain
    subprocess.run(["ssh-add", "-q", "-D"], check=True, env=agent)
    login.cut()
    await link.wait_lost()
    with pytest.raises(AuthenticationFailed, match="did not let us in"):
        await link.open()
    assert login.accepted() == ["publickey"] * 2


def certificate(home: Path, validity: str) -> str:
    """A key that a CA has signed for this user; the lines of ssh_config that offer it."""
    key = keygen(home / f"key{len(list(home.glob('key*')))}")
    words = ["-s", str(home / "ca"), "-I", "test", "-n", getpass.getuser(), "-V", validity]
    subprocess.run(["ssh-keygen", "-q", *words, f"{key}.pub"], check=True)
    return f"IdentityFile {key}\n  CertificateFile {key}-cert.pub"


async def test_a_certificate_lets_one_in_until_it_expires(
    slurm_lab: LabInfo, connect: Connect
) -> None:
    with login_host(slurm_lab, started=False) as host:
        ca = keygen(host.home / "ca")
        host.options += [f"TrustedUserCAKeys {ca}.pub", "AuthorizedKeysFile none"]
        host.start()
        host.write_client_config(certificate(host.home, "+1h"))
        link = await connect(host)
        assert (await link.run(["echo", "in"])).text == "in\n"
        assert "ED25519-CERT" in host.said()
        host.write_client_config(certificate(host.home, "-2h:-1h"))
        host.cut()
        host.refusals = 3  # key and certificate, in one connection
        await link.wait_lost()
        with pytest.raises(AuthenticationFailed):
            await link.open()
        assert host.accepted() == ["publickey"]


async def test_the_touch_of_a_security_key_is_asked_for_in_words(
    login: LoginHost, connect: Connect
) -> None:
    """There is no such key here: a stand-in says ssh's line, then is ssh."""
    line = "Confirm user presence for key ED25519-SK SHA256:abc"
    program = login.home / "ssh-sk"
    program.write_text(f'#!/bin/sh\ncase " $* " in *" -M "*) echo "{line}" >&2;; esac\n')
    with program.open("a") as file:
        file.write(f'exec {shutil.which("ssh")} "$@"\n')
    program.chmod(0o755)
    shown: asyncio.Queue[str] = asyncio.Queue()
    await connect(ssh=str(program), notice=shown.put_nowait)
    assert shown.get_nowait() == f"login: touch your security key ({line})"
    assert shown.empty()


@pytest.mark.logins(4)
async def test_tk_auth_brings_the_agent_of_a_later_login(
    login: LoginHost, agent: dict[str, str]
) -> None:
    """The session began with another one, which ended with that login."""
    async with project_by(login) as project:
        await project.up("node1")
        project.env["SSH_AUTH_SOCK"] = agent["SSH_AUTH_SOCK"]
        await project.tk("auth")
        before = [one for one in project.laptop_processes() if one.program == "ssh"]
        processes.kill(before)

        def reconnected() -> bool:
            wanted = f"SSH_AUTH_SOCK={agent['SSH_AUTH_SOCK']}"
            return any(
                one.program == "ssh" and one.pid not in {old.pid for old in before}
                and wanted in one.environ
                for one in project.laptop_processes()
            )  # fmt: skip

        await eventually(reconnected, "an ssh with that agent")
