"""What the person has agreed to: remembered in the state directory, by path and digests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tunnelkit.config.schema import Settings
from tunnelkit.config.trust import asks_for, check_places
from tunnelkit.errors import ConfigError
from tunnelkit.session.runtime.paths import private_directory, state_root
from tunnelkit.text_format import shown

_MOST_BYTES = 1 << 20
_INCLUDE = re.compile(rb"^[ \t]*\"?include\"?[ \t=\"]", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TrustRequest:
    """What a project's file asks for: key -> value as shown. settings: with the ssh_config
    that came with the project replaced by a copy of what was looked at, so that a later
    `git pull` changes nothing for a session that runs."""

    settings: Settings
    items: Mapping[str, str]
    digests: Mapping[str, str]
    content: bytes | None = None

    @property
    def agreed(self) -> bool:
        """Whether all of it was agreed to as it is now."""
        if not self.items:
            return True
        known = _recall(self.settings)
        origins = self.settings.origins
        # What a flag covers at the moment is no change of the file.
        gone = [
            name
            for name in known.keys() - self.digests.keys()
            if name not in origins or origins[name].kind not in ("flag", "environment")
        ]
        return not gone and all(known.get(name) == one for name, one in self.digests.items())

    def agree(self) -> None:
        """Remember that the person has agreed. Raises ConfigError, OSError."""
        path = _record(self.settings)
        private_directory(path.parent)
        _write(path, json.dumps({"path": _path(self.settings), "keys": dict(self.digests)}))

    def usable(self) -> Settings:
        """The settings to go on with, once it is agreed to. Raises ConfigError, OSError."""
        if self.content is None:
            return self.settings
        name = hashlib.sha256(self.content).hexdigest()[:32]
        copy = private_directory(state_root() / "trust") / f"{name}.ssh_config"
        _write(copy, self.content.decode("utf-8", "surrogateescape"))
        return replace(self.settings, cluster=replace(self.settings.cluster, ssh_config=copy))


def examine(settings: Settings) -> TrustRequest:
    """What needs an agreement. Raises ConfigError for what no project's file may ask for."""
    if settings.config_file is None:
        return TrustRequest(settings, {}, {})
    check_places(settings)
    items = asks_for(settings)
    digests = {name: _digest(value.encode()) for name, value in items.items()}
    content = None
    if "cluster.ssh_config" in items and _came_along(settings):
        content = _content(settings)
        text = content.decode("utf-8", "backslashreplace")
        items["cluster.ssh_config"] += ", which says: " + shown(text.strip().replace("\n", "; "))
        digests["cluster.ssh_config"] += _digest(content)
    return TrustRequest(settings, items, digests, content)


def forget(settings: Settings) -> bool:
    """Take the agreement back; False if there was none."""
    with contextlib.suppress(FileNotFoundError):
        _record(settings).unlink()
        return True
    return False


def _came_along(settings: Settings) -> bool:
    """Whether the ssh_config is a file that the project's own history may change."""
    path = settings.cluster.ssh_config
    assert path is not None
    root = settings.project_dir
    return path.is_relative_to(root) or path.resolve().is_relative_to(root.resolve())


def _content(settings: Settings) -> bytes:
    path = settings.cluster.ssh_config
    assert path is not None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(0, "it is no plain file")
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"the project's ssh_config {shown(str(path))} can't be read",
            cause=error.strerror,
            hint="correct cluster.ssh_config in tunnelkit.toml",
        ) from None
    if len(data) > _MOST_BYTES or _INCLUDE.search(data):
        raise ConfigError(
            f"the project's ssh_config {shown(str(path))} can't be used",
            cause="it includes other files, or is over 1 MiB: what it says can't be shown whole",
            hint="write what is needed into that file, or put it into your own ~/.ssh/config",
        )
    return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _path(settings: Settings) -> str:
    return os.path.realpath(settings.config_file or settings.project_dir)


def _record(settings: Settings) -> Path:
    name = hashlib.sha256(os.fsencode(_path(settings))).hexdigest()[:32]
    return state_root() / "trust" / f"{name}.json"


def _recall(settings: Settings) -> Mapping[str, str]:
    path = _record(settings)
    try:
        for one in (path.parent, path):
            status = one.lstat()
            if status.st_uid != os.geteuid() or status.st_mode & 0o022 or one.is_symlink():
                return {}
        data = json.loads(path.read_bytes())
        if data["path"] != _path(settings):
            return {}
        return {str(name): str(one) for name, one in data["keys"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    temporary.replace(path)
