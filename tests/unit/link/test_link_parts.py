"""The pure parts of the OpenSSH link."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit import local_ports
from tunnelkit.child_process import Lines, run_child
from tunnelkit.errors import MissingProgram, UsageError
from tunnelkit.link.openssh.argv import SshCommand
from tunnelkit.link.options import LinkOptions, destination_words
from tunnelkit.link.shared.host_keys import EffectiveConfig, node_options
from tunnelkit.model import Hop


@given(st.text())
def test_effective_config_reads_anything(text: str) -> None:
    EffectiveConfig.parse(text)


def test_effective_config() -> None:
    config = EffectiveConfig.parse(
        "host node1\nhostname 10.1.2.3\nport 2222\nstricthostkeychecking true\n"
        "globalknownhostsfile /etc/ssh/ssh_known_hosts\nuserknownhostsfile ~/a /dev/null\n"
    )
    assert config.known_as == "[10.1.2.3]:2222"
    assert config.is_strict and not config.is_off
    assert config.known_hosts == ("~/a", "/etc/ssh/ssh_known_hosts")


async def test_an_unchecked_node_is_checked_all_the_same(tmp_path: Path) -> None:
    """`StrictHostKeyChecking no` with /dev/null is common for nodes: it is tightened."""
    config = EffectiveConfig.parse(
        "hostname node1\nstricthostkeychecking false\nuserknownhostsfile /dev/null\n"
    )
    options = await node_options(config, alias="node1.via.login", own=tmp_path / "known%hosts")
    assert "StrictHostKeyChecking=accept-new" in options
    assert f'UserKnownHostsFile="{tmp_path}/known%%hosts"' in options


@pytest.mark.parametrize(
    ("destination", "words"),
    [
        ("login", ["--", "login"]),
        ("me@login", ["--", "me@login"]),
        ("me@login:2222", ["-p", "2222", "--", "me@login"]),
        ("fe80::1", ["--", "fe80::1"]),
    ],
)
def test_destinations(destination: str, words: list[str]) -> None:
    assert destination_words(destination) == words


def test_percent_signs_survive_each_hop() -> None:
    """Each ssh on the way expands % once; a config file may hold one in its name."""
    options = LinkOptions(
        login=Hop("c"), jumps=(Hop("a"), Hop("b")), ssh_config=Path("/tmp/100%/cfg")
    )
    (_, setting) = SshCommand(options, batch=True).jump_option()
    outer = setting.removeprefix("ProxyCommand=")
    assert "-F /tmp/100%%/cfg" in outer
    assert outer.endswith("-W '[%h]:%p' -- b")
    assert "/tmp/100%%%%/cfg" in outer  # as the ssh to b will hand it to the ssh to a
    assert "[%%h]:%%p" in outer


def test_sessions_never_connect_by_themselves() -> None:
    command = SshCommand(LinkOptions(login=Hop("login")), batch=False)
    for argv in (command.session(Path("/c/m")), command.control(Path("/c/m"))):
        assert "ProxyCommand=/bin/false" in argv
    assert not any(
        "StrictHostKeyChecking" in word for word in command.master(Path("/c/m"), "login")
    )


@given(st.binary(), st.lists(st.integers(0, 60)))
def test_lines_do_not_depend_on_the_cuts(data: bytes, cuts: list[int]) -> None:
    whole, pieces = Lines(), Lines()
    whole.feed(data)
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    for start, stop in itertools.pairwise(edges):
        pieces.feed(data[start:stop])
    assert whole.since(0) == pieces.since(0)
    assert whole.text() == pieces.text()


def test_lines_are_bounded_and_marked() -> None:
    lines = Lines(keep=3)
    lines.feed(b"a\nb\n")
    mark = lines.mark()
    lines.feed(b"c\nd\ne\nrest")
    assert lines.since(0) == ["c", "d", "e"]
    assert lines.since(mark) == ["c", "d", "e"]
    assert lines.since(lines.mark()) == []
    lines.feed(b"x" * 100_000)
    assert len(lines.text()) < 10_000


async def test_lines_wake_the_one_who_waits() -> None:
    lines = Lines()
    waiting = asyncio.create_task(lines.wait_for("ready"))
    await asyncio.sleep(0)
    lines.feed(b"not yet\nre")
    await asyncio.sleep(0)
    lines.feed(b"ady now\n")
    assert await asyncio.wait_for(waiting, 5) == "ready now"


async def test_run_child() -> None:
    done = await run_child(["sh", "-c", "cat; echo no >&2; exit 3"], stdin=b"in")
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"in", b"no\n")
    with pytest.raises(TimeoutError):
        await run_child(["sleep", "1000"], timeout_s=0.05)
    with pytest.raises(MissingProgram):
        await run_child(["no-such-program-here"])
    assert (await run_child(["true"], stdin=b"x" * 1_000_000)).exit_code == 0


def test_a_port_and_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not local_ports.is_free(port)
        owner = local_ports.owner(port)
        assert owner is not None and owner.pid == os.getpid()
        with pytest.raises(UsageError, match=str(port)):
            local_ports.check_free(port)
    assert local_ports.is_free(port)
    assert local_ports.owner(port) is None


def test_a_port_that_another_session_has_names_the_session() -> None:
    listen = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])"
    argv = [sys.executable, "-uc", f"{listen}\ninput()", "tunnelkit.session.daemon"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        with pytest.raises(UsageError) as refused:
            local_ports.check_free(port)
        other.communicate("\n")
    assert f"a session of tk (pid {other.pid})" in refused.value.one_line()
    assert "tk down in its project" in refused.value.one_line()
