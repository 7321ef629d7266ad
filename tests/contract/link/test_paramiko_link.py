"""What the paramiko link does besides the contract, on real sshds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from link_rig import PARAMIKO, keygen, leftovers, wait_for

from tests.support.ports import free_port
from tunnelkit import local_ports
from tunnelkit.errors import ConnectionFailed
from tunnelkit.model import Hop, LocalForward

pytestmark = PARAMIKO


def threads() -> list[str]:
    """Live threads of the link, paramiko's own among them."""
    return [
        one.name
        for one in threading.enumerate()
        if one.name.startswith(("tk-link", "Srv-")) or "process_request" in one.name
    ]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_nothing_is_left_after_a_close(connect, cluster) -> None:
    """paramiko's transport threads are known to stay (its issue 2319)."""
    before = 0
    for round_ in range(3):
        link = await connect()
        stream = await link.open_stream(["cat"], node="node1")
        forward = LocalForward(free_port(), "127.0.0.1", cluster["node1"].port)
        await link.forward(forward, node="node1")
        with socket.create_connection(("127.0.0.1", forward.bind_port)) as open_one:
            assert await asyncio.to_thread(open_one.recv, 4) == b"SSH-"
            await link.close()
            assert stream.ended
        assert local_ports.is_free(forward.bind_port)
        wait_for(lambda: not threads(), what=f"the end of {threads()}")
        if round_ == 0:
            before = descriptors()
    assert descriptors() <= before


@contextmanager
def never_reads() -> Iterator[int]:
    """A server that accepts and then says and takes nothing; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def test_a_hung_forward_does_not_hold_up_the_end(connect, cluster) -> None:
    """sshtunnel's stop waits without end for its connections (its issues 72, 138, 169, 201)."""
    with never_reads() as port, leftovers(cluster, "1000.5"):
        link = await connect()
        forward = LocalForward(free_port(), "127.0.0.1", port)
        await link.forward(forward)
        with socket.create_connection(("127.0.0.1", forward.bind_port)) as stuck:
            stuck.settimeout(0.3)
            with pytest.raises(TimeoutError):
                while True:  # until every window and buffer on the way is full
                    stuck.sendall(bytes(1 << 20))
            cluster["login"].freeze()
            await asyncio.wait_for(link.cancel_forward(forward), 10)
            assert local_ports.is_free(forward.bind_port)
            await asyncio.wait_for(link.close(), 20)
        wait_for(lambda: not threads(), what="the end of all threads")


async def test_close_in_the_middle_of_an_open(connect, cluster) -> None:
    asked = asyncio.Event()

    async def prompter(question: str, echo: bool) -> str:
        asked.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")

    cluster.write_known_hosts(without=("login",))
    config = cluster.write_ssh_config("ask", strict="ask")
    link = await connect(opened=False, ssh_config=config, prompter=prompter)
    opening = asyncio.create_task(link.open())
    await asked.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await link.close()
    wait_for(lambda: not threads(), what="the end of all threads")


async def test_open_replaces_a_connection_that_is_silent(connect, cluster) -> None:
    link = await connect(alive_interval_s=60)
    frozen = cluster["login"].freeze()
    try:
        await link.open()
        assert (await link.run(["echo", "hi"])).text == "hi\n"
    finally:
        for pid in frozen:
            # The first of them may have been the last one's only reason to live.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def test_nothing_waits_for_acknowledgements(connect, cluster) -> None:
    """Without TCP_NODELAY a connection's second small packet waits 40 ms, each way."""
    link = await connect()
    sock = link._login.connection.transport._buffered._sock
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    forward = LocalForward(free_port(), "127.0.0.1", cluster["node1"].port)
    await link.forward(forward)
    with socket.create_connection(("127.0.0.1", forward.bind_port)) as client:
        assert await asyncio.to_thread(client.recv, 4) == b"SSH-"
        active, *_ = link._forwards._wanted.values()
        (pump,) = active.forwarder._pumps
        assert pump._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_proxy_command(connect, cluster) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("the ProxyCommand here is an ssh")
    by = f"ssh -F {cluster.ssh_config} -W [%h]:%p bastion"
    config = cluster.write_ssh_config("proxied", extra=f"Host login\n  ProxyCommand {by}")
    link = await connect(ssh_config=config)
    assert (await link.run(["echo", "hi"])).text == "hi\n"
    assert cluster["bastion"].authentications() == 1
    await link.close()
    wait_for(
        lambda: not cluster.processes_in(str(cluster.ssh_config)),
        what="the end of the ProxyCommand",
    )


async def test_proxy_jump_of_several_hops_in_ssh_config(connect, cluster) -> None:
    config = cluster.write_ssh_config("hops", extra="Host node2\n  ProxyJump bastion,login,node1")
    link = await connect(login=Hop("node2"), ssh_config=config)
    assert (await link.run(["echo", "far"])).text == "far\n"
    counts = {name: sshd.authentications() for name, sshd in cluster.sshds.items()}
    assert counts == {"bastion": 1, "login": 1, "node1": 1, "node2": 1}


@contextmanager
def agent(cluster, *keys: Path) -> Iterator[Path]:
    path = cluster.home / "agent.s"
    with subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(path.exists, what="the agent's socket")
            env = {**os.environ, "SSH_AUTH_SOCK": str(path)}
            for key in keys:
                subprocess.run(["ssh-add", "-q", str(key)], env=env, check=True)
            yield path
        finally:
            process.terminate()


async def test_keys_of_an_agent(connect, cluster) -> None:
    other = keygen(cluster.home / "other_key")
    with agent(cluster, other, cluster.client_key) as path:
        # The private half is nowhere but in the agent.
        public = cluster.home / "only.pub"
        public.write_text(cluster.client_key.with_suffix(".pub").read_text())
        config = cluster.write_ssh_config("agent", key=public, extra=f"IdentityAgent {path}")
        link = await connect(ssh_config=config)
        assert (await link.run(["echo", "hi"])).text == "hi\n"
        assert "Failed publickey" not in cluster["login"].log.read_text(), "the one named first"


async def test_a_certificate(connect, cluster) -> None:
    authority = keygen(cluster.home / "ca")
    key = keygen(cluster.home / "signed_key")
    words = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", cluster.user]
    subprocess.run([*words, f"{key}.pub"], check=True, capture_output=True)
    login = cluster["login"]
    login.stop()
    login.options.append(f"TrustedUserCAKeys {authority}.pub")
    login.start()
    link = await connect(ssh_config=cluster.write_ssh_config("signed", key=key))
    assert (await link.run(["echo", "hi"])).text == "hi\n"
    assert "ED25519-CERT" in login.log.read_text()


async def test_a_fido_key_is_said_with_the_way_out(connect, cluster) -> None:
    key = keygen(cluster.home / "sk_key")
    key.write_text("no private half that paramiko could use\n")
    blob = key.with_suffix(".pub").read_text().split()[1]
    key.with_suffix(".pub").write_text(f"sk-ssh-ed25519@openssh.com {blob} me\n")
    link = await connect(opened=False, ssh_config=cluster.write_ssh_config("sk", key=key))
    with pytest.raises(ConnectionFailed) as caught:
        await link.open()
    assert "FIDO" in (caught.value.cause or "")
    assert "--link openssh" in (caught.value.hint or "")


async def test_a_lent_shell_tells_of_a_lost_link(connect, cluster) -> None:
    link = await connect()
    argv = [*link.remote_shell(), "login", "sleep 1000.75"]
    with leftovers(cluster, "sleep 1000.75"):
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        await asyncio.to_thread(
            wait_for, lambda: cluster.processes_in("sleep 1000.75"), what="the command"
        )
        link._login.connection.transport.abort()
        assert await asyncio.wait_for(process.wait(), 10) == 255
    argv[-1] = "true"
    again = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    _, said = await again.communicate()
    # Whether it is known already, or only just found.
    lost = (b"not connected to login", b"the connection to login is lost")
    assert again.returncode == 255 and any(one in said for one in lost)


async def test_sftp_by_the_lent_shell(connect, cluster, home) -> None:
    if shutil.which("sftp") is None:
        pytest.skip("no sftp client here")
    link = await connect()
    (home / "there").write_text("text")
    wrapper = home / "as-ssh"
    words = " ".join(link.remote_shell(node="node1"))
    wrapper.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    wrapper.chmod(0o755)
    argv = ["sftp", "-q", "-S", str(wrapper), f"node1:{home}/there", str(home / "here")]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (home / "here").read_text() == "text"
