"""Commands and streams over ssh: sessions, their limits and logins. See test_every_link.py."""

from __future__ import annotations

import asyncio

import pytest
from link_rig import echo, leftovers

from tunnelkit.errors import ConnectionFailed, TimeoutExpired, UsageError
from tunnelkit.link.shared import session_slots


async def test_a_commands_own_255_is_an_exit_code(connect) -> None:
    link = await connect()
    assert (await link.run(["sh", "-c", "exit 255"])).exit_code == 255
    done = await link.run(["sh", "-c", "echo Session open refused by peer >&2; exit 255"])
    assert done.exit_code == 255


async def test_timeout_ends_the_client(connect, cluster) -> None:
    link = await connect()
    with leftovers(cluster, "1000.125"):
        with pytest.raises(TimeoutExpired, match="login"):
            await link.run(["sleep", "1000.125"], timeout_s=0.5)
        assert not [pid for pid in cluster.processes_in("1000.125") if _is_ssh(pid)]
    assert (await link.run(["echo", "on"])).text == "on\n"


async def test_bad_words_and_nodes(connect) -> None:
    link = await connect()
    with pytest.raises(UsageError):
        await link.run([])
    with pytest.raises(UsageError):
        await link.run(["true"], node="-oProxyCommand=touch /tmp/x")


async def test_many_at_once_authenticate_once(connect, cluster) -> None:
    """30 commands against MaxSessions 10: they queue, and none connects anew."""
    link = await connect()
    runs = [link.run(["sh", "-c", f"sleep 0.1; echo {n}"]) for n in range(30)]
    done = await asyncio.gather(*runs)
    assert [result.text for result in done] == [f"{n}\n" for n in range(30)]
    assert cluster["login"].authentications() == 1


@pytest.mark.parametrize("sshd_options", [{"login": ["MaxSessions 2"]}])
async def test_a_refused_session_waits_its_turn(connect, cluster) -> None:
    link = await connect()
    done = await asyncio.gather(*(link.run(["sleep", "0.2"]) for _ in range(6)))
    assert {result.exit_code for result in done} == {0}
    stream = await link.open_stream(["cat"])
    other = await link.open_stream(["cat"])
    with pytest.raises(TimeoutExpired, match="true"):
        await link.run(["true"], timeout_s=1.0)
    await stream.close()
    assert (await link.run(["true"])).exit_code == 0
    await other.close()
    assert cluster["login"].authentications() == 1


async def test_each_host_authenticates_once(connect, cluster) -> None:
    link = await connect()
    hosts = [None, "node1", "node2"] * 3
    done = await asyncio.gather(*(link.run(["echo", "hi"], node=node) for node in hosts))
    assert [result.text for result in done] == ["hi\n"] * 9
    counts = {name: sshd.authentications() for name, sshd in cluster.sshds.items()}
    assert counts == {"bastion": 0, "login": 1, "node1": 1, "node2": 1}


async def test_closing_a_stream_frees_its_slot(connect) -> None:
    link = await connect()
    for _ in range(12):
        stream = await link.open_stream(["cat"])
        await stream.close()
    streams = [await link.open_stream(["cat"]) for _ in range(6)]
    assert (await link.run(["echo", "room"])).text == "room\n"
    for stream in streams:
        await stream.close()


async def test_a_stream_waits_for_a_slot_no_longer_than_it_may(connect, monkeypatch) -> None:
    """Our own limit counts as the host's does: all of its slots may be held for days."""
    link = await connect(max_sessions=3)
    held = await link.open_stream(["cat"])
    with monkeypatch.context() as hurried:
        hurried.setattr(session_slots, "STREAM_START_S", 0.3)
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionFailed, match="login allows no further") as refused:
                await link.open_stream(["cat"])
    assert refused.value.transient
    await held.close()
    assert await echo(await link.open_stream(["cat"]), b"free again") == b"free again"


def _is_ssh(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip() == "ssh"
    except OSError:
        return False
