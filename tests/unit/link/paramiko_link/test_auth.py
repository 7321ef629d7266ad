"""Logging in, question by question, against a server that counts what it is asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import paramiko
import pytest
from paramiko import AUTH_FAILED, AUTH_PARTIALLY_SUCCESSFUL, AUTH_SUCCESSFUL, InteractiveQuery

from tunnelkit.errors import AuthenticationFailed, ConnectionFailed
from tunnelkit.link.paramiko_link.auth import Login, NoAnswer
from tunnelkit.link.paramiko_link.known_hosts import Ask
from tunnelkit.link.paramiko_link.ssh_config import HostConfig
from tunnelkit.link.paramiko_link.transport import SshTransport

HOST = HostConfig("login", "10.0.0.1", 22, "ann", "yes", (), identity_agent="")


@dataclass
class Site(paramiko.ServerInterface):
    """A password, then maybe a code. `tries` is what sites count, and lock accounts by."""

    methods: str = "password"
    second: str | None = None
    tries: list[str] = field(default_factory=list)
    passed: bool = False

    def get_allowed_auths(self, username: str) -> str:
        return self.second if self.passed and self.second else self.methods

    def check_auth_password(self, username: str, password: str) -> int:
        self.tries.append(password)
        if password != "sesame":
            return AUTH_FAILED
        self.passed = True
        return AUTH_PARTIALLY_SUCCESSFUL if self.second else AUTH_SUCCESSFUL

    def check_auth_interactive(self, username: str, submethods: str) -> int | InteractiveQuery:
        return InteractiveQuery("Two factors", "Look at your phone", ("Code: ", True))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        self.tries.append(",".join(responses))
        return AUTH_SUCCESSFUL if responses == ["123456"] else AUTH_FAILED


@pytest.fixture
def connect() -> Iterator[Callable[[Site], SshTransport]]:
    transports: list[paramiko.Transport] = []
    key = paramiko.ECDSAKey.generate()

    def make(site: Site) -> SshTransport:
        ours, theirs = socket.socketpair()
        server = paramiko.Transport(theirs)
        server.add_server_key(key)
        server.start_server(event=threading.Event(), server=site)
        client = SshTransport(ours, timeout_s=10.0)
        client.start_client(timeout=10.0)
        transports.extend((client, server))
        return client

    yield make
    for one in transports:
        if isinstance(one, SshTransport):
            one.abort()
        else:
            one.close()
        one.join(5.0)
        assert not one.is_alive()


class Person:
    """Answers in turn; None is nobody there."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, bool]] = []
        self.told: list[str] = []

    def ask(self, question: str, echo: bool) -> str:
        self.asked.append((question, echo))
        answer = self.answers.pop(0)
        if answer is None:
            raise NoAnswer(question)
        return answer


def log_in(
    transport: SshTransport, person: Person, *, ask: Ask | None = None, host: HostConfig = HOST
) -> None:
    Login(transport, host, ask or person.ask, person.told.append, 10.0).run()


def test_a_password_is_asked_once(connect: Callable[[Site], SshTransport]) -> None:
    site, person = Site(), Person("sesame")
    transport = connect(site)
    log_in(transport, person)
    assert transport.is_authenticated()
    assert person.asked == [("ann@10.0.0.1's password: ", False)]


@pytest.mark.parametrize("methods", ["password", "password,keyboard-interactive"])
def test_a_wrong_answer_ends_the_attempt(
    connect: Callable[[Site], SshTransport], methods: str
) -> None:
    site = Site(methods)
    person = Person("wrong", "wrong again")
    host = replace(HOST, preferred=("password", "keyboard-interactive"))
    with pytest.raises(AuthenticationFailed, match="did not let us in") as caught:
        log_in(connect(site), person, host=host)
    assert len(person.asked) == len(site.tries) == 1
    assert not caught.value.transient, "or the session would try again by itself"


def test_two_factors(connect: Callable[[Site], SshTransport]) -> None:
    site, person = Site(second="keyboard-interactive"), Person("sesame", "123456")
    transport = connect(site)
    log_in(transport, person)
    assert transport.is_authenticated()
    assert person.asked[1] == ("(ann@10.0.0.1) Code: ", True)
    assert site.tries == ["sesame", "123456"]
    assert any("Look at your phone" in text for text in person.told)


@pytest.mark.parametrize("methods", ["password", "keyboard-interactive"])
def test_no_answer_is_no_failed_try(connect: Callable[[Site], SshTransport], methods: str) -> None:
    site, person = Site(methods), Person(None)
    with pytest.raises(NoAnswer):
        log_in(connect(site), person)
    assert site.tries == []


def test_batch_asks_nothing(connect: Callable[[Site], SshTransport]) -> None:
    site = Site("password,keyboard-interactive")
    with pytest.raises(ConnectionFailed) as caught:
        Login(connect(site), HOST, None, print, 10.0).run()
    assert site.tries == [] and "terminal" in (caught.value.hint or "")


def test_a_method_that_the_user_turned_off(connect: Callable[[Site], SshTransport]) -> None:
    site, person = Site(), Person()
    with pytest.raises(ConnectionFailed):
        log_in(connect(site), person, host=replace(HOST, refused=frozenset({"password"})))
    assert person.asked == []


@pytest.mark.parametrize("methods", ["gssapi-with-mic", "gssapi-with-mic,hostbased", "hostbased"])
def test_what_paramiko_has_no_code_for_is_said(
    connect: Callable[[Site], SshTransport], methods: str
) -> None:
    with pytest.raises(ConnectionFailed) as caught:
        log_in(connect(Site(methods)), Person())
    assert "--link openssh" in (caught.value.hint or "")
    assert ("Kerberos" if "gssapi" in methods else "hostbased") in (caught.value.cause or "")
