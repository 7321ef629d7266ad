"""The connection to a host, made in a thread: sockets, jumps, host keys, logins, and error
messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paramiko import AuthenticationException, Channel, SSHException
from paramiko.ssh_exception import IncompatiblePeer

from tunnelkit.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ConnectionThrottled,
    TunnelkitError,
)
from tunnelkit.link.base import Prompter
from tunnelkit.link.paramiko_link.auth import Login, NoAnswer
from tunnelkit.link.paramiko_link.known_hosts import Ask, KnownHosts
from tunnelkit.link.paramiko_link.ssh_config import HostConfig
from tunnelkit.link.paramiko_link.transport import PROHIBITED, AuthRefused, SshTransport

_CHANNEL_EXTRA_S = 5.0


class Attempt:
    """One try to connect: what it has opened so far, and how to ask the user.

    Made on the event loop; `ask` and the rest are for its thread.
    """

    def __init__(self, prompter: Prompter | None, notice: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._prompter = prompter
        self._notice = notice
        self._ends: list[Callable[[], None]] = []
        self._asked: asyncio.Task[str | None] | None = None
        self._lock = threading.Lock()
        self.aborted = False
        self.asking = 0
        self.answered_at: float | None = None

    @property
    def ask(self) -> Ask | None:
        """Asks the user, from a thread; None if nobody is there to answer."""
        return self._ask if self._prompter is not None else None

    def notice(self, text: str) -> None:
        """Show a text to the user, from any thread."""
        self._loop.call_soon_threadsafe(self._notice, text)

    def own(self, end: Callable[[], None]) -> None:
        """`end` closes something of this attempt: now, if it has been given up already."""
        with self._lock:
            self._ends.append(end)
            aborted = self.aborted
        if aborted:
            end()

    def abort(self) -> None:
        """Make the thread give up. On the event loop."""
        with self._lock:
            self.aborted = True
            ends = list(self._ends)
        if self._asked is not None:
            self._asked.cancel()
        for end in reversed(ends):
            end()

    async def end_if_silent(self, limit_s: float) -> None:
        """Give up `limit_s` seconds after a user's last answer; runs until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            at = self.answered_at
            if not self.asking and at is not None and time.monotonic() - at > limit_s:
                self.abort()
                return

    def _ask(self, question: str, echo: bool) -> str:
        assert self._prompter is not None
        if self.aborted:
            raise NoAnswer(question)
        self.asking += 1
        try:
            asked = asyncio.run_coroutine_threadsafe(self._put(question, echo), self._loop)
            answer = asked.result()
        finally:
            self.asking -= 1
            self.answered_at = time.monotonic()
        if answer is None:
            raise NoAnswer(question.strip())
        return answer

    async def _put(self, question: str, echo: bool) -> str | None:
        assert self._prompter is not None
        self._asked = asyncio.ensure_future(_answer(self._prompter, question, echo))
        await asyncio.wait({self._asked})
        return None if self._asked.cancelled() else self._asked.result()


async def _answer(prompter: Prompter, question: str, echo: bool) -> str | None:
    try:
        return await prompter(question, echo)
    except Exception:
        # Whatever broke at the asking end, sshd must see no answer rather than an empty one.
        import logging

        logging.getLogger(__name__).exception("the prompter failed")
        return None


@dataclass(frozen=True)
class Step:
    """One host on the way, and the rules for its key."""

    host: HostConfig
    rules: KnownHosts


@dataclass
class HopPath:
    """Connects to the last of `steps` through those before it, and through `upstream`."""

    steps: list[Step]
    attempt: Attempt
    connect_timeout_s: float
    auth_timeout_s: float
    upstream: SshTransport | None = None
    made: list[SshTransport] = field(default_factory=list)

    def run(self) -> list[SshTransport]:
        """All transports made, the last one to the destination. Raises TunnelkitError, after
        it has ended what it made."""
        through = self.upstream
        try:
            for step in self.steps:
                through = self._connect(step, through)
                self.made.append(through)
            return self.made
        except BaseException:
            for transport in reversed(self.made):
                transport.abort()
            raise

    def _connect(self, step: Step, through: SshTransport | None) -> SshTransport:
        host = step.host
        try:
            sock = self._socket(host, through)
            transport = SshTransport(sock, timeout_s=self.connect_timeout_s)
        except (OSError, EOFError, SSHException) as error:
            raise explain(host.name, error, hop=through is not None) from error
        self.attempt.own(transport.abort)
        try:
            transport.prefer(key_types=step.rules.key_types(), ciphers=host.ciphers)
            transport.start_client(timeout=self.connect_timeout_s + _CHANNEL_EXTRA_S)
            step.rules.check(transport.get_remote_server_key(), self.attempt.ask)
            Login(transport, host, self.attempt.ask, self.attempt.notice, self.auth_timeout_s).run()
            transport.settle()
            return transport
        except BaseException as error:
            transport.abort()
            transport.join(1.0)
            if isinstance(error, NoAnswer):
                raise AuthenticationFailed(
                    f"{host.name} asks a question and nobody answered",
                    cause=str(error),
                    hint="answer in a terminal: `tk auth` (or `tk up`); a key's passphrase: "
                    "ssh-add",
                ) from None
            if isinstance(error, OSError | EOFError | SSHException):
                if self.attempt.answered_at is not None:
                    raise _after_an_answer(host.name, error) from error
                raise explain(host.name, error, hop=through is not None) from error
            raise

    def _socket(self, host: HostConfig, through: SshTransport | None) -> socket.socket | Channel:
        if through is not None:
            return through.direct(host.hostname, host.port, timeout_s=self.connect_timeout_s)
        if host.proxy_command:
            return self._by_command(host)
        where = (host.address or host.hostname, host.port)
        sock = socket.create_connection(where, self.connect_timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.attempt.own(sock.close)
        return sock

    def _by_command(self, host: HostConfig) -> socket.socket:
        """A ProxyCommand at the other end of a socket pair; it ends when that closes."""
        ours, theirs = socket.socketpair()
        command = (host.proxy_command or "").replace("%%", "%")
        with theirs:
            try:
                child = subprocess.Popen(
                    ["/bin/sh", "-c", f"exec {command}"],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        # The owner of the connection ends it; then it is reaped here.
        threading.Thread(
            target=_reap, args=(child,), name="tk-link proxy-command", daemon=True
        ).start()
        return ours


def _reap(child: subprocess.Popen[bytes]) -> None:
    child.wait()


def explain(host: str, error: Exception, *, hop: bool = False) -> TunnelkitError:
    """The error behind a connection that did not come."""
    if isinstance(error, TunnelkitError):
        return error
    cause = str(error) or type(error).__name__

    def failed(message: str, hint: str, *, transient: bool = True) -> ConnectionFailed:
        return ConnectionFailed(message, cause=cause, hint=hint, transient=transient)

    under: BaseException | None = error
    while under is not None and not isinstance(under, TimeoutError):
        under = under.__context__
    network = "check the network or VPN, and the host name"
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        # Just woken up, or the resolver is away: the name itself may be right.
        return failed(f"the name {host} can't be resolved now", "check the network, VPN and DNS")
    if isinstance(error, socket.gaierror) or "Name or service not known" in cause:
        return failed(
            f"there is no host called {host}",
            "check the spelling, your ssh_config, and that you are online (VPN?)",
            transient=False,
        )
    if isinstance(error, AuthRefused) and error.code == PROHIBITED:
        return failed(
            f"the host before {host} forbids TCP forwarding",
            "ask its admins for AllowTcpForwarding, or enter the node by the scheduler",
            transient=False,
        )
    if hop and isinstance(error, AuthRefused):
        return failed(
            f"{host} can't be reached from the host before it",
            "is it up, and is a job of yours on it?",
        )
    if isinstance(error, ConnectionRefusedError):
        return failed(f"{host} refused the connection", "is sshd up there, and the port right?")
    if isinstance(under, TimeoutError) or "Timeout" in cause or "timed out" in cause.lower():
        return failed(f"{host} does not answer", network)
    if isinstance(error, AuthenticationException):
        return failed(
            f"{host} broke off while it was asked to let us in",
            "it may count us as too eager (MaxAuthTries, MaxStartups); wait a little",
        )
    if isinstance(error, IncompatiblePeer):
        return failed(
            f"{host} and paramiko have no algorithm in common",
            "use `--link openssh`",
            transient=False,
        )
    if isinstance(error, SSHException | EOFError | ConnectionError):
        return ConnectionThrottled(
            f"{host} closed the connection before we could log in",
            cause=cause,
            hint="it may be busy or count us as too eager (MaxStartups, PerSourcePenalties); wait"
            " a little",
            transient=True,
        )
    return failed(f"{host} can't be reached", network)


def _after_an_answer(host: str, error: Exception) -> AuthenticationFailed:
    """The error after a user's answer: a further attempt would ask again, or try the same answer
    again.
    """
    return AuthenticationFailed(
        f"{host} broke off after a question was answered",
        cause=str(error) or type(error).__name__,
        hint="try again: `tk auth`, or `tk up`",
    )


def quietly_end(transport: SshTransport) -> None:
    """End a transport and wait for its thread, bounded."""
    transport.abort()
    with contextlib.suppress(RuntimeError):
        transport.join(2.0)
