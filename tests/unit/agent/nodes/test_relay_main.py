"""The relay itself, without the agent's side: its ends, whatever ends it."""

from __future__ import annotations

import os
import pty
import re
import secrets
import signal
import subprocess
import sys
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunnelkit import agent_zip
from tunnelkit.agent.links import socket_dir
from tunnelkit.agent.nodes.relay_main import Relay
from tunnelkit.agent.processes import port_file as portfile
from tunnelkit.mux import rpc
from tunnelkit.wire import endpoint
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.events import DataReceived
from tunnelkit.wire.handshake import NO_ID, Hello, HelloReader, Status


class Running:
    """A relay as a child of this process, spoken to byte by byte."""

    def __init__(self, argv: list[str], stdout: int = subprocess.PIPE) -> None:
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE,
            env={**os.environ, "SLURMD_NODENAME": "far"},
        )  # fmt: skip
        assert self.process.stdin is not None
        self.stdin = self.process.stdin.fileno()
        self.stdout = -1 if self.process.stdout is None else self.process.stdout.fileno()
        self.endpoint = Endpoint(client=True)

    def greet(self) -> None:
        endpoint = self.endpoint
        os.write(self.stdin, Hello(Status.FRESH, b"c" * 16, NO_ID, 0, 1 << 20).encode())
        reader = HelloReader()
        answer = None
        while answer is None:
            answer = reader.feed(os.read(self.stdout, 4096))
        assert answer.status is Status.FRESH
        assert reader.noise == b""
        endpoint.link_up(answer.received, answer.window)
        endpoint.receive(reader.rest)
        self.channel = endpoint.open({"type": "rpc"})

    def call(self, method: str, **params: object) -> dict[str, object]:
        self.endpoint.send(self.channel, rpc.encode({"id": 1, "call": method, "params": params}))
        os.write(self.stdin, b"".join(self.endpoint.outgoing(1 << 20)))
        came = b""
        while len(came) < 4 or len(came) < 4 + int.from_bytes(came[:4], "big"):
            for event in self.endpoint.receive(os.read(self.stdout, 65536)):
                if isinstance(event, DataReceived):
                    came += event.data
        return rpc._decode(came[4:])

    def ended(self) -> tuple[int, str]:
        assert self.process.stderr is not None
        code = self.process.wait(20)
        return code, self.process.stderr.read().decode()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()
            if self.process.stdout is not None:
                self.process.stdout.close()


@pytest.fixture
def argv(tmp_path: Path) -> Iterator[list[str]]:
    name = f"test-{secrets.token_hex(6)}"
    agent = tmp_path / agent_zip.build().file_name
    agent.write_bytes(agent_zip.build().data)
    yield [sys.executable, "-I", "-S", str(agent), "relay", name]
    left = list(Path(socket_dir.make_directory()).glob(f"{name}.*"))
    for file in left:
        file.unlink()
    assert left == []


@pytest.fixture
def relay(argv: list[str]) -> Iterator[Running]:
    running = Running(argv)
    try:
        running.greet()
        yield running
    finally:
        running.close()


def port_file(argv: list[str], loop: int = 1) -> Path:
    return Path(portfile.path_of(socket_dir.make_directory(), argv[-1], loop, "far"))


def test_the_agents_death_ends_it_and_its_files(relay: Running, argv: list[str]) -> None:
    answer = relay.call("dialin.open", loop=1)
    assert port_file(argv).read_text() == f"{answer['result']['port']}\n"  # type: ignore[index]
    assert relay.process.stdin is not None
    relay.process.stdin.close()
    assert relay.ended() == (0, "")
    assert not port_file(argv).exists()


def test_term_ends_it_and_its_files(relay: Running, argv: list[str]) -> None:
    relay.call("dialin.open", loop=1)
    relay.call("dialin.open", loop=2)
    assert port_file(argv, 2).exists()
    relay.process.send_signal(signal.SIGTERM)
    assert relay.ended() == (0, "")
    assert not port_file(argv, 2).exists()


def test_what_a_killed_relay_left_goes_with_the_next(argv: list[str]) -> None:
    other = port_file(argv).with_name(f"{argv[-1]}.1.elsewhere.port")
    for file in (port_file(argv), other):
        file.write_text("1\n")
    running = Running(argv)
    try:
        running.greet()
        assert running.call("info")["result"]["loops"] == {}  # type: ignore[index]
        assert not port_file(argv).exists()
        assert other.exists()
        running.call("dialin.open", loop=1)
        # A relay that came after has the file now.
        port_file(argv).write_text("1\n")
        running.call("dialin.close", loop=1)
        assert port_file(argv).read_text() == "1\n"
    finally:
        running.close()
        for file in (port_file(argv), other):
            file.unlink()


def test_signals_to_the_whole_job_are_not_for_it(relay: Running) -> None:
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP):
        relay.process.send_signal(number)
    assert relay.call("info")["result"]["node"] == "far"  # type: ignore[index]


def test_a_port_is_opened_once_and_bad_calls_are_answered(relay: Running) -> None:
    first = relay.call("dialin.open", loop=1)
    assert relay.call("dialin.open", loop=1) == first
    assert relay.call("dialin.close", loop=9)["result"] is None
    assert "unknown call" in str(relay.call("exec.probe")["error"])
    assert "error" in relay.call("dialin.open")


def test_what_is_no_agent_is_told(argv: list[str]) -> None:
    running = Running(argv)
    try:
        running.process.stdin.close()  # type: ignore[union-attr]
        code, said = running.ended()
        assert code == 1
        assert said == "tunnelkit: relay: the far end went away before its hello\n"
    finally:
        running.close()


def test_a_terminal_for_stdout_carries_any_bytes(argv: list[str]) -> None:
    master, slave = pty.openpty()
    tty.setcbreak(slave)
    running = Running(argv, stdout=slave)
    os.close(slave)
    running.stdout = master
    try:
        running.greet()
        assert running.call("info")["result"]["pid"] == running.process.pid  # type: ignore[index]
    finally:
        running.close()
        os.close(master)


def test_the_protocols_page_lists_its_calls() -> None:
    page = Path(endpoint.__file__).with_name("PROTOCOL.md").read_text()
    section = page.partition("\n## Relays\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| ([a-z.]+) \|", section, re.MULTILINE)
    assert listed[0] == "call"
    assert sorted(listed[1:]) == sorted(Relay.__new__(Relay)._handlers())
