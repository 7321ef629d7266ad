"""Host key rules of the paramiko link: those of host_keys.py, on known_hosts files read here.

A changed key is always a hard stop. `StrictHostKeyChecking no` is tightened to
accept-new, and a node that none of the user's files knows is accepted on first sight
into tk's own file.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paramiko import HostKeys, PKey

from tunnelkit.errors import HostKeyError
from tunnelkit.link.paramiko_link.ssh_config import HostConfig, glob_pattern
from tunnelkit.link.shared.diagnosis import (
    both_names,
    changed_key,
    revoked_key,
    unknown_key,
)

#: Asks a user from a thread. Parameters: the question, may the answer be shown.
Ask = Callable[[str, bool], str]


@dataclass(frozen=True)
class KnownHost:
    """One line of a known_hosts file. marker: "", "revoked" or "cert-authority"."""

    path: Path
    line: int
    marker: str
    names: str
    key_type: str
    blob: bytes

    def is_for(self, name: str) -> bool:
        """True if the line holds for a host known as `name` (`host` or `[host]:port`)."""
        if self.names.startswith("|1|"):
            return _hash_matches(self.names, name)
        matched = False
        for pattern in self.names.split(","):
            if re.fullmatch(glob_pattern(pattern.lstrip("!").lower()), name.lower()):
                if pattern.startswith("!"):
                    return False
                matched = True
        return matched


def read_entries(path: Path) -> Iterator[KnownHost]:
    """The lines of a known_hosts file that can be read; none if there is no file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        marker = words.pop(0)[1:] if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except ValueError:
            continue
        yield KnownHost(path, number, marker, words[0], words[1], blob)


class KnownHosts:
    """The lines of some known_hosts files about one host; new keys go to the first file."""

    def __init__(self, host: HostConfig, files: Sequence[Path], *, strict: str) -> None:
        self.host = host
        self._files = files
        self._strict = strict
        entries = [entry for path in files for entry in read_entries(path)]
        self._mine = [entry for entry in entries if entry.is_for(host.known_as)]
        plain = host.hostname if host.port != 22 and not host.host_key_alias else None
        self._plain = [entry for entry in entries if plain and entry.is_for(plain)]

    @property
    def is_known(self) -> bool:
        """True if there is a key of this host."""
        return any(not entry.marker for entry in self._mine)

    def key_types(self) -> list[str]:
        """The kinds of key to ask for: another kind than the known one can't be compared."""
        types: list[str] = []
        for entry in (*self._mine, *self._plain):
            rsa = entry.key_type == "ssh-rsa"
            kinds = ["rsa-sha2-512", "rsa-sha2-256"] if rsa else [entry.key_type]
            types += [kind for kind in kinds if not entry.marker and kind not in types]
        return types

    def check(self, key: PKey, ask: Ask | None) -> None:
        """Return if the key that the host offers is trusted. Raises HostKeyError otherwise."""
        blob, kind = key.asbytes(), key.get_name()
        same = [entry for entry in self._mine if entry.blob == blob]
        if any(entry.marker == "revoked" for entry in same):
            raise revoked_key(self._named, f"{same[0].path}:{same[0].line}")
        if any(not entry.marker for entry in same):
            return
        other = [one for one in self._mine if one.key_type == kind and not one.marker]
        if other:
            raise self._changed(other[0], key)
        if any(entry.blob == blob and not entry.marker for entry in self._plain):
            return
        self._meet(key, ask)

    def _meet(self, key: PKey, ask: Ask | None) -> None:
        """A host that nobody knows."""
        if self._strict == "yes" or (self._strict == "ask" and ask is None):
            raise self._unknown(f"it offers {_kind(key)} {fingerprint(key.asbytes())}")
        if self._strict == "ask":
            assert ask is not None
            answer = ask(
                f"The authenticity of host '{self._named}' can't be established.\n"
                f"{_kind(key)} key fingerprint is {fingerprint(key.asbytes())}.\n"
                "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
                True,
            ).strip()
            if answer.lower() != "yes" and answer != fingerprint(key.asbytes()):
                raise self._unknown("it was not accepted")
        self._remember(key)

    def _changed(self, entry: KnownHost, key: PKey) -> HostKeyError:
        known = f"{fingerprint(entry.blob)} ({entry.path}:{entry.line})"
        remove = self.host.known_as, str(entry.path)
        return changed_key(self._named, known, fingerprint(key.asbytes()), remove=remove)

    def _unknown(self, cause: str) -> HostKeyError:
        strict = self._strict == "yes"
        return unknown_key(self.host.name, self._named, cause, strict=strict)

    def _remember(self, key: PKey) -> None:
        if not self._files:
            return
        path, name = self._files[0], self.host.known_as
        if self.host.hash_known_hosts and not self.host.host_key_alias:
            name = HostKeys.hash_host(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(fd, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            unended = file.read(1) not in (b"", b"\n")
            line = f"{name} {key.get_name()} {key.get_base64()}\n"
            file.write((b"\n" if unended else b"") + line.encode())

    @property
    def _named(self) -> str:
        return both_names(self.host.name, self.host.known_as)


def login_rules(host: HostConfig, own: Path) -> KnownHosts:
    """The user's config, but never without any check."""
    if host.strict == "off":
        return KnownHosts(host, (own, *host.known_hosts), strict="accept-new")
    return KnownHosts(host, host.known_hosts, strict=host.strict)


def node_rules(host: HostConfig, own: Path, *, alias: str) -> KnownHosts:
    """A node's: in tk's own file it has the name `alias`, apart from other clusters'."""
    users = KnownHosts(host, host.known_hosts, strict=host.strict)
    if host.strict == "yes" or users.is_known:
        return users
    return KnownHosts(replace(host, host_key_alias=alias), (own,), strict="accept-new")


def fingerprint(blob: bytes) -> str:
    """As `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _kind(key: PKey) -> str:
    return key.get_name().removeprefix("ssh-").removeprefix("ecdsa-sha2-").upper()


def _hash_matches(hashed: str, name: str) -> bool:
    try:
        _, _, salt, digest = hashed.split("|")
        wanted = base64.b64decode(digest, validate=True)
        made = hmac.new(base64.b64decode(salt, validate=True), name.encode(), "sha1").digest()
    except ValueError:
        return False
    return hmac.compare_digest(made, wanted)
