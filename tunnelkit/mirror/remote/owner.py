"""Who mirrors into a remote directory: one laptop directory at a time.

A small file beside the remote root (`.NAME.tk-owner`; where its parent can't be written,
`.tk-owner` inside, which is never mirrored) names the owner. It is made by link(2), so two
who start at once can't both win, and is looked at again with every push. There is no lock
to go stale: the same laptop directory is known by its identity and goes on at once after a
kill -9; any other is refused until the owner has ended, or is told `tk up --take-over`.
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

#: The owner's file where it can't be beside the root.
OWNER_FILE = ".tk-owner"
_LAPTOP_ID = "laptop-id"


@dataclass(frozen=True, slots=True)
class Owner:
    """One laptop directory. id: hex, tells it from all others; since: Unix time; turn: hex,
    another one each time that what is still on its way to an agent must not be published."""

    id: str
    host: str
    directory: str
    user: str
    since: float
    turn: str = ""

    def next_turn(self) -> Owner:
        """The same, with another turn."""
        return replace(self, turn=secrets.token_hex(8))

    def dump(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: str) -> Owner | None:
        """What `dump` wrote; None if it is anything else."""
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
        """Who that is, for a person."""
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.since))
        text = f"{self.directory} on {self.host} (user {self.user}, since {since})"
        return text if text.isprintable() else ascii(text)


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """A remote root that is ours. file: the owner's file there; taken_from: whom it was
    taken from."""

    file: str
    owner: Owner
    taken_from: str | None = None

    @property
    def token(self) -> str:
        """What an agent is to find in the file before it publishes anything."""
        return self.owner.turn or self.owner.id


def this_owner(state_dir: Path, local_root: str) -> Owner:
    """The owner that this laptop directory is (blocking). Raises OSError."""
    # The file tells laptops with the same name apart; machine-id, those that share a home.
    parts = (_laptop_id(state_dir), _machine_id(), local_root)
    identity = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    owner = Owner(identity[:32], socket.gethostname(), local_root, _user(), time.time())
    return owner.next_turn()


def describe_owner(text: str) -> str:
    """An owner's file in words, whatever is in it."""
    owner = Owner.parse(text)
    if owner is not None:
        return owner.describe()
    # Written by the script that could not read another user's record.
    if re.fullmatch(r"user [\w.@-]{1,64}", text.strip()):
        return f"the {text.strip()} there"
    return "somebody whose record can't be read"


def refused(host: str, root: str, text: str) -> MirrorError:
    """The error of the second who wants to mirror into `root`."""
    return MirrorError(
        f"{host}:{root} already has a mirror",
        cause=f"it belongs to {describe_owner(text)}",
        hint="`tk down` there, name another directory in [mirror] remote, or: tk up --take-over",
    )


class Displaced(MirrorHalted):
    """Another mirror has taken over: nothing more is sent from here."""


def refused_nested(host: str, root: str, file: str, other: str, text: str) -> MirrorError:
    """The error of one who wants to mirror into `root`, while `other`, around it or in it, is
    the target of the mirror that the owner's file tells of."""
    where = "is inside" if root.startswith(other.rstrip("/") + "/") else "is around"
    return MirrorError(
        f"{host}:{root} {where} {other}, which has a mirror",
        cause=f"that one belongs to {describe_owner(text)}",
        hint=f"name another directory in [mirror] remote; if that mirror is no more, remove {file}",
    )


def displaced(host: str, root: str, text: str) -> Displaced:
    """The error of the first, once another has taken over."""
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
    # Several mirrors of one session come here at once.
    temporary = path.with_suffix(f".{os.getpid()}-{secrets.token_hex(4)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w") as stream:
        stream.write(secrets.token_hex(16))
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)  # the first one stays
    temporary.unlink()
    return path.read_text().strip()


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
