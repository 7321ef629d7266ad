"""Ownership of a remote directory: one laptop directory at a time may mirror into it.

A small file beside the remote root (`.NAME.tk-owner`; or `.tk-owner` inside, which is never
mirrored, if the parent can't be written) names the owner. It is made by link(2), so of two that
start at once only one can win, and it is checked with every push. No lock can become stale: the
same laptop directory is known by its identity and continues at once after a kill -9. Any other one
is refused until the owner has ended, or until `tk up --take-over`.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import re
import secrets
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tunnelkit.errors import MirrorError, MirrorHalted
from tunnelkit.machine import machine_id

#: Name of the owner file if it can't be beside the root.
OWNER_FILE = ".tk-owner"
_LAPTOP_ID = "laptop-id"


@dataclass(frozen=True, slots=True)
class Owner:
    """One laptop directory.

    id: hex, unique.
    since: Unix time.
    turn: hex, changes each time that what is still on its way to an agent must not be published.
    """

    id: str
    host: str
    directory: str
    user: str
    since: float
    turn: str = ""

    def next_turn(self) -> Owner:
        """Return the same owner with another turn."""
        return replace(self, turn=secrets.token_hex(8))

    def dump(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: str) -> Owner | None:
        """Read what `dump` wrote; None for anything else."""
        try:
            data = json.loads(text)
            return Owner(
                str(data["id"]),
                str(data["host"]),
                str(data["directory"]),
                str(data["user"]),
                float(data["since"]),
                str(data.get("turn", "")),
            )
        except (ValueError, TypeError, KeyError):
            return None

    def describe(self) -> str:
        """Return the owner in words for the user."""
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.since))
        text = f"{self.directory} on {self.host} (user {self.user}, since {since})"
        return text if text.isprintable() else ascii(text)


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """A remote root that this session owns.

    file: the owner file there.
    taken_from: the former owner, if it was taken over.
    """

    file: str
    owner: Owner
    taken_from: str | None = None

    @property
    def token(self) -> str:
        """The text that an agent must find in the file before it publishes anything."""
        return self.owner.turn or self.owner.id


def this_owner(state_dir: Path, local_root: str) -> Owner:
    """Return this laptop directory as an owner (blocking). Raises OSError."""
    # The file tells laptops with the same name apart; machine-id, those that share a home.
    parts = (_laptop_id(state_dir), machine_id(), local_root)
    identity = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    owner = Owner(identity[:32], socket.gethostname(), local_root, _user(), time.time())
    return owner.next_turn()


def describe_owner(text: str) -> str:
    """Describe the content of an owner file, whatever it is."""
    owner = Owner.parse(text)
    if owner is not None:
        return owner.describe()
    # Written by the script that could not read another user's record.
    if re.fullmatch(r"user [\w.@-]{1,64}", text.strip()):
        return f"the {text.strip()} there"
    return "somebody whose record can't be read"


def refused(host: str, root: str, text: str) -> MirrorError:
    """Return the error for the second mirror into `root`."""
    return MirrorError(
        f"{host}:{root} already has a mirror",
        cause=f"it belongs to {describe_owner(text)}",
        hint="`tk down` there, name another directory in [mirror] remote, or: tk up --take-over",
    )


class Displaced(MirrorHalted):
    """Another mirror has taken over: nothing more is sent from here."""


def refused_nested(host: str, root: str, file: str, other: str, text: str) -> MirrorError:
    """Return the error for a mirror into `root` while another one exists around it or in it.

    other: the root of that mirror.
    file, text: its owner file, and the content.
    """
    where = "is inside" if root.startswith(other.rstrip("/") + "/") else "is around"
    return MirrorError(
        f"{host}:{root} {where} {other}, which has a mirror",
        cause=f"that one belongs to {describe_owner(text)}",
        hint=f"name another directory in [mirror] remote; if that mirror is no more, remove {file}",
    )


def displaced(host: str, root: str, text: str) -> Displaced:
    """Return the error for the first mirror, once another one has taken over."""
    return Displaced(
        f"another mirror has taken over {host}:{root}",
        cause=f"it belongs to {describe_owner(text)} now; nothing more is sent from here",
        hint="`tk down` here; `tk up --take-over` takes it back",
    )


def _laptop_id(state_dir: Path) -> str:
    path = state_dir / _LAPTOP_ID
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Several mirrors of one session call this at once.
    temporary = path.with_suffix(f".{os.getpid()}-{secrets.token_hex(4)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w") as stream:
        stream.write(secrets.token_hex(16))
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)  # the first one stays
    temporary.unlink()
    return path.read_text().strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
