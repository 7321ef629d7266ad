"""Record of the user's agreements: kept in the state directory, by path and digests."""

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
from tunnelkit.session.runtime.paths import private_directory, state_root, write_private
from tunnelkit.text_format import shown

_MOST_BYTES = 1 << 20
_INCLUDE = re.compile(rb"^[ \t]*\"?include\"?[ \t=\"]", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TrustRequest:
    """The settings in a project's file that need the user's agreement.

    items: key -> value as shown to the user. digests: key -> digest of that value.
    content: of an ssh_config that is part of the project, else None. `usable` sets a copy of it,
    so that a later `git pull` changes nothing for a running session.
    """

    settings: Settings
    items: Mapping[str, str]
    digests: Mapping[str, str]
    content: bytes | None = None

    @property
    def agreed(self) -> bool:
        """True if the user has agreed to all items with their present values."""
        if not self.items:
            return True
        known = _recall(self.settings)
        origins = self.settings.origins
        # A key that a flag or variable overrides now was not removed from the file.
        gone = [
            name
            for name in known.keys() - self.digests.keys()
            if name not in origins or origins[name].kind not in ("flag", "environment")
        ]
        return not gone and all(known.get(name) == one for name, one in self.digests.items())

    def agree(self) -> None:
        """Record that the user has agreed. Raises ConfigError or OSError."""
        path = _record(self.settings)
        private_directory(path.parent)
        write_private(path, json.dumps({"path": _path(self.settings), "keys": dict(self.digests)}))

    def usable(self) -> Settings:
        """Return the settings to use after the agreement. Raises ConfigError or OSError."""
        if self.content is None:
            return self.settings
        name = hashlib.sha256(self.content).hexdigest()[:32]
        copy = private_directory(state_root() / "trust") / f"{name}.ssh_config"
        write_private(copy, self.content.decode("utf-8", "surrogateescape"))
        return replace(self.settings, cluster=replace(self.settings.cluster, ssh_config=copy))


def examine(settings: Settings) -> TrustRequest:
    """Return the items that need agreement. Raises ConfigError for those that tk never allows."""
    if settings.config_file is None:
        return TrustRequest(settings, {}, {})
    check_places(settings)
    items = asks_for(settings)
    digests = {name: _digest(value.encode()) for name, value in items.items()}
    content = None
    ssh_config = settings.cluster.ssh_config
    if ssh_config is not None and "cluster.ssh_config" in items:
        content = _content(ssh_config) if _came_along(ssh_config, settings.project_dir) else None
    if content is not None:
        text = content.decode("utf-8", "backslashreplace")
        items["cluster.ssh_config"] += ", which says: " + shown(text.strip().replace("\n", "; "))
        digests["cluster.ssh_config"] += _digest(content)
    return TrustRequest(settings, items, digests, content)


def forget(settings: Settings) -> bool:
    """Delete the agreement; return False if there was none."""
    with contextlib.suppress(FileNotFoundError):
        _record(settings).unlink()
        return True
    return False


def _came_along(path: Path, root: Path) -> bool:
    """True if the ssh_config lies in the project, so the project's history may change it."""
    return path.is_relative_to(root) or path.resolve().is_relative_to(root.resolve())


def _content(path: Path) -> bytes:
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
