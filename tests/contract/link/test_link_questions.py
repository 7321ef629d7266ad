"""Questions of a link to the user (passphrases, new host keys), and links without an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from link_rig import cut, fingerprint, keygen, refused

from tunnelkit.errors import AuthenticationFailed, ConnectionFailed


def locked_config(cluster) -> Path:
    key = keygen(cluster.home / "locked_key", "sesame")
    with (cluster.home / "authorized_keys").open("a") as file:
        file.write(key.with_suffix(".pub").read_text())
    return cluster.write_ssh_config("locked", key=key)


async def test_passphrase_is_asked_once_per_host(connect, cluster) -> None:
    asked = []

    async def prompter(question: str, echo: bool) -> str:
        asked.append((question, echo))
        return "sesame"

    link = await connect(ssh_config=locked_config(cluster), prompter=prompter)
    assert len(asked) == 1
    assert "locked_key" in asked[0][0] and asked[0][1] is False
    await asyncio.gather(*(link.run(["true"]) for _ in range(5)))
    assert len(asked) == 1
    await link.close()
    assert list((cluster.home / "ctl").iterdir()) == []


async def test_new_host_key_is_asked(connect, cluster) -> None:
    cluster.write_known_hosts(without=("login",))
    asked = []

    async def prompter(question: str, echo: bool) -> str:
        asked.append((question, echo))
        return "yes"

    config = cluster.write_ssh_config("ask", strict="ask")
    link = await connect(ssh_config=config, prompter=prompter)
    assert (await link.run(["echo", "hi"])).text == "hi\n"
    ((question, echo),) = asked
    assert fingerprint(cluster["login"].host_key.with_suffix(".pub")) in question
    assert echo is True


async def test_nobody_answers(connect, cluster) -> None:
    async def prompter(question: str, echo: bool) -> None:
        return None

    error = await refused(
        connect, ConnectionFailed, ssh_config=locked_config(cluster), prompter=prompter
    )
    assert "nobody answered" in error.message and "locked_key" in (error.cause or "")


async def test_a_broken_prompter_is_no_answer(connect, cluster) -> None:
    async def prompter(question: str, echo: bool) -> str:
        raise RuntimeError("the terminal is gone")

    error = await refused(
        connect, ConnectionFailed, ssh_config=locked_config(cluster), prompter=prompter
    )
    assert "nobody answered" in error.message


async def test_batch_never_asks(connect, cluster) -> None:
    error = await refused(connect, ConnectionFailed, ssh_config=locked_config(cluster))
    assert "did not let us in" in error.message


async def test_a_wrong_answer_is_asked_once(connect, cluster) -> None:
    asked = []

    async def prompter(question: str, echo: bool) -> str:
        asked.append(question)
        return "wrong"

    await refused(connect, ConnectionFailed, ssh_config=locked_config(cluster), prompter=prompter)
    assert len(asked) == 1


async def test_without_a_person_nothing_is_asked(connect, cluster) -> None:
    """A reconnect by itself: who would have to be asked is waited for, by the error's kind."""
    asked, present = [], [True]

    async def prompter(question: str, echo: bool) -> str:
        asked.append(question)
        return "sesame"

    link = await connect(
        ssh_config=locked_config(cluster), prompter=prompter, attended=lambda: present[0]
    )
    assert len(asked) == 1
    present[0] = False
    cut(link)
    await link.wait_lost()
    with pytest.raises(AuthenticationFailed) as caught:
        await link.open()
    assert "terminal" in (caught.value.hint or "")
    assert len(asked) == 1
    present[0] = True
    await link.open()
    assert len(asked) == 2


async def test_a_node_that_may_not_ask_is_refused_and_another_time_asks(connect, cluster) -> None:
    """While the scheduler leads into a job, a node's password would be one login too many."""
    asked, may_ask = [], [False]

    async def prompter(question: str, echo: bool) -> str:
        asked.append(question)
        return "sesame"

    link = await connect(
        ssh_config=locked_config(cluster), prompter=prompter, asks_nodes=lambda: may_ask[0]
    )
    with pytest.raises(AuthenticationFailed, match="node1"):
        await link.run(["true"], node="node1")
    assert len(asked) == 1
    may_ask[0] = True
    assert (await link.run(["echo", "hi"], node="node1")).text == "hi\n"
    assert len(asked) == 2
