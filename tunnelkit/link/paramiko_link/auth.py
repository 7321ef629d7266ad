"""Authentication of the paramiko link: agent, keys, certificates, then questions to the user.

The order is ssh's. Each method is tried once, each question asked once: a wrong answer ends the
attempt, since sites count failures and lock accounts.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from paramiko import (
    AuthenticationException,
    BadAuthenticationType,
    ECDSAKey,
    Ed25519Key,
    PasswordRequiredException,
    PKey,
    RSAKey,
    SSHException,
)
from paramiko.agent import AgentSSH, get_agent_connection
from paramiko.pkey import PublicBlob

from tunnelkit.errors import AuthenticationFailed
from tunnelkit.link.paramiko_link.known_hosts import Ask
from tunnelkit.link.paramiko_link.ssh_config import HostConfig
from tunnelkit.link.paramiko_link.transport import SshTransport

_METHODS = ("publickey", "keyboard-interactive", "password")
_OPENSSH = "with `--link openssh` your own ssh does that"


class NoAnswer(Exception):
    """A question that nobody answered; its text."""


@dataclass
class Login:
    """One attempt to log in to one host.

    ask: None in batch. notice: called with what may help the user.
    """

    transport: SshTransport
    host: HostConfig
    ask: Ask | None
    notice: Callable[[str], None]
    auth_timeout_s: float

    def run(self) -> None:
        """Authenticate. Raises AuthenticationFailed, NoAnswer, SSHException."""
        transport, user = self.transport, self.host.user
        transport.auth_timeout = self.auth_timeout_s
        tried: set[str] = set()
        self._cannot: list[str] = []
        self._unanswered: NoAnswer | None = None
        with _agent(self.host) as agent:
            try:
                transport.auth_none(user)
                return
            except BadAuthenticationType as error:
                allowed = list(error.allowed_types)
            while not transport.is_authenticated():
                method = next(
                    (one for one in self._order() if one in allowed and one not in tried), None
                )
                if method is None:
                    raise self._refused(allowed)
                tried.add(method)
                more = self._try(method, agent)
                if more is not None:
                    allowed = more

    def _order(self) -> Sequence[str]:
        """The methods that can be used, in the user's order or ssh's."""
        order = [one for one in self.host.preferred if one in _METHODS] or _METHODS
        asking = self.ask is not None
        return [
            one for one in order if one not in self.host.refused and (asking or one == "publickey")
        ]

    def _try(self, method: str, agent: _HeldAgent) -> list[str] | None:
        """Try one method. None if it did not help; what has to follow (a second factor), or
        nothing more, if it did."""
        if method == "publickey":
            return self._by_keys(agent)
        try:
            if method == "password":
                return self._by_password()
            return self._by_questions()
        except AuthenticationException:
            if self._unanswered is not None:
                raise self._unanswered from None
            if not self.transport.is_active():
                raise
            # The user has answered: another method would ask again.
            raise self._refused([method]) from None

    # -- keys

    def _by_keys(self, agent: _HeldAgent) -> list[str] | None:
        for key in self._keys(agent):
            try:
                return list(self.transport.auth_publickey(self.host.user, key))
            except BadAuthenticationType as error:
                return list(error.allowed_types)
            except AuthenticationException:
                if not self.transport.is_active():
                    raise
        return None

    def _keys(self, agent: _HeldAgent) -> Iterator[PKey]:
        """The keys to offer: the agent's that are also files, files, other keys of the agent,
        and last the files that need a passphrase."""
        files = [path for path in self.host.identity_files if _exists(path)]
        blobs = {_public_blob(path) for path in files}
        offered = list(agent.get_keys())
        first = [key for key in offered if key.asbytes() in blobs]
        had = {key.asbytes() for key in first}
        yield from self._with_certificates(first)
        locked = []
        for path in files:
            if _public_blob(path) in had:
                continue
            loaded = self._load(path, None)
            if isinstance(loaded, PKey):
                yield from self._with_certificates([loaded], beside=path)
            elif loaded:
                locked.append(path)
        if not self.host.identities_only:
            yield from (key for key in offered if key.asbytes() not in had)
        for path in locked if self.ask is not None else []:
            assert self.ask is not None
            opened = self._load(path, self.ask(f"Enter passphrase for key '{path}': ", False))
            if isinstance(opened, PKey):
                yield from self._with_certificates([opened], beside=path)

    def _load(self, path: Path, passphrase: str | None) -> PKey | bool:
        """The key in a file; True if it wants a passphrase, False if it can't be used."""
        failure: Exception | None = None
        for kind in (Ed25519Key, RSAKey, ECDSAKey):
            try:
                return kind.from_private_key_file(str(path), passphrase)
            except PasswordRequiredException:
                return True
            except Exception as error:  # another kind, a wrong passphrase, or no key at all
                failure = failure or error
        if passphrase is None and not _is_public(path):
            self._cannot.append(_why_not(path, failure))
        return False

    def _with_certificates(
        self, keys: Sequence[PKey], *, beside: Path | None = None
    ) -> Iterator[PKey]:
        paths = list(self.host.certificate_files)
        for path in [beside] if beside else self.host.identity_files:
            paths.append(path.with_name(f"{path.name}-cert.pub"))
        for key in keys:
            for path in paths:
                if _exists(path) and _is_certificate_of(path, key):
                    key.public_blob = PublicBlob.from_file(str(path))
                    yield key
            key.public_blob = None
            yield key

    # -- questions

    def _by_password(self) -> list[str]:
        host = self.host
        assert self.ask is not None
        answer = self.ask(f"{host.user}@{host.hostname}'s password: ", False)
        return list(self.transport.auth_password(host.user, answer, fallback=False))

    def _by_questions(self) -> list[str]:
        self.transport.auth_timeout = float("inf")  # a user thinks; `abort` ends the wait
        try:
            return list(self.transport.auth_interactive(self.host.user, self._answer))
        finally:
            self.transport.auth_timeout = self.auth_timeout_s

    def _answer(
        self, title: str, instructions: str, questions: list[tuple[str, bool]]
    ) -> list[str]:
        """Called in the transport's thread."""
        assert self.ask is not None
        for text in (title, instructions):
            if text.strip():
                self.notice(f"{self.host.name}: {text.strip()}")
        try:
            return [
                self.ask(f"({self.host.user}@{self.host.hostname}) {text}", echo)
                for text, echo in questions
            ]
        except NoAnswer as error:
            # An empty answer would count as a failure there: hang up instead.
            self._unanswered = error
            self.transport.abort()
            return []

    # -- the end of all tries

    def _refused(self, allowed: Sequence[str]) -> AuthenticationFailed:
        host, cannot = self.host, list(self._cannot)
        beyond = [one for one in allowed if one not in _METHODS]
        if "gssapi-with-mic" in beyond and (host.wants_gssapi or len(beyond) == len(allowed)):
            cannot.append("paramiko can't use Kerberos (GSSAPI)")
        elif beyond and len(beyond) == len(allowed):
            cannot.append(f"paramiko can't do {', '.join(beyond)}")
        hint = f"check User and IdentityFile for {host.name} in your ssh_config"
        if self.ask is None:
            hint += "; passwords, passphrases and codes are asked for in a terminal only: `tk auth`"
        return AuthenticationFailed(
            f"{host.name} did not let us in",
            cause="; ".join([f"Permission denied ({','.join(allowed)})", *cannot]),
            hint=f"{_OPENSSH}; or {hint}" if cannot else hint,
        )


def _why_not(path: Path, error: Exception | None) -> str:
    with contextlib.suppress(OSError):
        public = path.with_name(f"{path.name}.pub")
        if "sk-" in (public.read_text(errors="replace") if _exists(public) else ""):
            return f"{path} is a FIDO key, which paramiko can't use"
        if b"sk-" in path.read_bytes()[:64]:
            return f"{path} is a FIDO key, which paramiko can't use"
    return f"{path} can't be read as a key: {error}"


def _is_public(path: Path) -> bool:
    """IdentityFile may name the public half of a key that the agent holds."""
    with contextlib.suppress(Exception):
        PublicBlob.from_file(str(path))
        return True
    return False


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _public_blob(path: Path) -> bytes | None:
    """The public half of a key, from the file beside it or the file itself (for keys that
    only the agent holds, IdentityFile may name the public one)."""
    for name in (path.with_name(f"{path.name}.pub"), path):
        with contextlib.suppress(Exception):
            return bytes(PublicBlob.from_file(str(name)).key_blob)
    return None


def _is_certificate_of(path: Path, key: PKey) -> bool:
    """True if the certificate holds the same public key: its fields follow type and nonce."""
    with contextlib.suppress(Exception):
        blob = PublicBlob.from_file(str(path))
        fields = key.asbytes()[4 + len(key.get_name()) :]
        return "-cert-" in blob.key_type and fields in blob.key_blob
    return False


def _agent(host: HostConfig) -> _HeldAgent:
    """The agent that ssh_config names, or the environment. Without one it holds no key."""
    agent = _HeldAgent()
    with contextlib.suppress(SSHException, OSError):
        if host.identity_agent is None:
            agent.connect(get_agent_connection())
        elif host.identity_agent and _is_socket(host.identity_agent):
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(host.identity_agent)
                agent.connect(sock)
            except (SSHException, OSError):
                sock.close()
    return agent


if TYPE_CHECKING:

    class _AgentSSH(AgentSSH):
        """paramiko's own, with the names that its types leave out."""

        def _connect(self, conn: socket.socket) -> None: ...
        def _close(self) -> None: ...
else:
    _AgentSSH = AgentSSH


class _HeldAgent(_AgentSSH):
    """An agent's keys, with an end."""

    def connect(self, connection: socket.socket | None) -> None:
        """Ask for the keys. Raises SSHException, OSError."""
        if connection is not None:
            self._connect(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


def _is_socket(path: str) -> bool:
    return hasattr(socket, "AF_UNIX") and os.path.exists(path)
