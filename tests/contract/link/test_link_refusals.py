"""Hosts, keys, ports and configurations that a link refuses, in words for people."""

from __future__ import annotations

import socket
import stat
import time

import pytest
from link_rig import fingerprint, keygen, refused

from tunnelkit.errors import ConfigError, ConnectionFailed, HostKeyError, UnknownHostKey
from tunnelkit.model import Hop


async def test_unknown_host(connect, cluster) -> None:
    error = await refused(connect, ConnectionFailed, login=Hop("no-such-host.invalid"))
    assert "no host called no-such-host.invalid" in error.message


async def test_refused_port(connect, cluster) -> None:
    cluster["login"].stop()
    error = await refused(connect, ConnectionFailed)
    assert "login refused the connection" in error.message
    assert error.transient


async def test_refused_behind_a_jump(connect, cluster) -> None:
    cluster["login"].stop()
    error = await refused(connect, ConnectionFailed, jumps=(Hop("bastion"),))
    assert "login" in error.message and "refused" in (error.cause or "")


async def test_refused_node(connect, cluster) -> None:
    cluster["node1"].stop()
    link = await connect()
    with pytest.raises(ConnectionFailed, match="node1") as caught:
        await link.run(["true"], node="node1")
    assert "refused" in (caught.value.cause or "")
    assert (await link.run(["echo", "login lives"])).text == "login lives\n"


async def test_unknown_node(connect) -> None:
    link = await connect()
    with pytest.raises(ConnectionFailed, match="no-such-node"):
        await link.run(["true"], node="no-such-node.invalid")


async def test_a_black_hole_is_bounded(connect, cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        config = cluster.write_ssh_config(
            "hole", extra=f"Host login\n  Port {hole.getsockname()[1]}"
        )
        started = time.monotonic()
        error = await refused(connect, ConnectionFailed, ssh_config=config, connect_timeout_s=1)
        assert "does not answer" in error.message
        assert time.monotonic() - started < 5


async def test_wrong_key(connect, cluster, home) -> None:
    config = cluster.write_ssh_config("wrong", key=keygen(home / "other_key"))
    error = await refused(connect, ConnectionFailed, ssh_config=config)
    assert "login" in error.message and "did not let us in" in error.message
    assert "publickey" in (error.cause or "")


@pytest.mark.parametrize("strict", ["yes", "ask", "no"])
async def test_changed_host_key_is_a_hard_stop(connect, cluster, strict) -> None:
    login = cluster["login"]
    known = fingerprint(login.host_key.with_suffix(".pub"))
    login.stop()
    offered = fingerprint(keygen(login.host_key).with_suffix(".pub"))
    login.start()
    config = cluster.write_ssh_config("strict", strict=strict)
    error = await refused(connect, HostKeyError, ssh_config=config)
    assert known in error.message and offered in error.message
    assert "ssh-keygen -R" in error.hint and str(cluster.known_hosts) in error.hint


async def test_changed_node_key_is_a_hard_stop(connect, cluster) -> None:
    cluster.write_known_hosts(without=("node1",))
    config = cluster.write_ssh_config("ask", strict="ask")
    first = await connect(ssh_config=config)
    await first.run(["true"], node="node1")
    known = fingerprint(cluster["node1"].host_key.with_suffix(".pub"))
    own = cluster.home / "ctl" / "known_hosts"
    assert "node1.via.login" in own.read_text()
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    await first.close()
    cluster["node1"].stop()
    offered = fingerprint(keygen(cluster["node1"].host_key).with_suffix(".pub"))
    cluster["node1"].start()
    second = await connect(ssh_config=config)
    with pytest.raises(HostKeyError) as caught:
        await second.run(["true"], node="node1")
    assert known in caught.value.message and offered in caught.value.message


@pytest.mark.parametrize("strict", ["yes", "ask"])
async def test_unknown_login_key_is_refused(connect, cluster, strict) -> None:
    cluster.write_known_hosts(without=("login",))
    config = cluster.write_ssh_config("strict", strict=strict)
    error = await refused(connect, HostKeyError, ssh_config=config)
    assert "is not known" in error.message


async def test_a_strict_config_holds_for_nodes(connect, cluster) -> None:
    cluster.write_known_hosts(without=("node1",))
    link = await connect()
    with pytest.raises(UnknownHostKey, match="node1") as caught:
        await link.run(["true"], node="node1")
    assert 'node_ssh = "no"' in (caught.value.hint or "")
    cluster.known_hosts.write_text(
        f"@revoked * {cluster['node1'].host_key.with_suffix('.pub').read_text()}"
    )
    with pytest.raises(HostKeyError, match="revoked") as revoked:
        await link.run(["true"], node="node1")
    assert not isinstance(revoked.value, UnknownHostKey)


async def test_bad_config(connect, cluster) -> None:
    config = cluster.write_ssh_config("bad", extra="NoSuchOption yes")
    error = await refused(connect, ConfigError, ssh_config=config)
    assert "nosuchoption" in (error.cause or "").lower()


async def test_control_dir_rules(connect, cluster, home) -> None:
    error = await refused(connect, ConfigError, control="x" * 80)
    assert "too long" in error.message
    (home / "open").mkdir(mode=0o755)
    error = await refused(connect, ConfigError, control="open")
    assert "open to other users" in error.message
