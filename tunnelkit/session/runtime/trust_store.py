"""Record of the user's agreements: kept in the state directory, by path and digests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tunnelkit.config.schema import Settings
from tunnelkit.config.trust import asks_for, check_places
from tunnelkit.errors import ConfigError
from tunnelkit.session.runtime.paths import private_directory, state_root, write_private
from tunnelkit.text_format import shown

_MOST_BYTES = 1 << 20
#: ssh skips blanks of all kinds and one `=` before a keyword.
_INCLUDE = re.compile(rb"^[\s=\"]*include\b", re.IGNORECASE | re.MULTILINE)
_SSH_CONFIG, _MANIFEST = "cluster.ssh_config", "allocation.manifest"


@dataclass(frozen=True, slots=True)
class TrustRequest:
    """The settings in a project's file that need the user's agreement.

    items: key -> value as shown to the user. digests: key -> digest of that value.
    contents: key -> content of a file that is part of the project: an ssh_config, a manifest.
    `usable` sets a copy of it, so that a later `git pull` changes nothing unasked.
    """

    settings: Settings
    items: Mapping[str, str]
    digests: Mapping[str, str]
    contents: Mapping[str, bytes] = field(default_factory=dict)

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
        settings = self.settings
        if (content := self.contents.get(_SSH_CONFIG)) is not None:
            copy = _copy(content, "ssh_config")
            settings = replace(settings, cluster=replace(settings.cluster, ssh_config=copy))
        if (content := self.contents.get(_MANIFEST)) is not None:
            copy = _copy(content, Path(settings.allocation.manifest or "").name)
            made = replace(settings.allocation, manifest=str(copy))
            settings = replace(settings, allocation=made)
        return settings


def examine(settings: Settings) -> TrustRequest:
    """Return the items that need agreement. Raises ConfigError for those that tk never allows."""
    if settings.config_file is None:
        return TrustRequest(settings, {}, {})
    check_places(settings)
    items = asks_for(settings)
    digests = {name: _digest(value.encode()) for name, value in items.items()}
    contents = {}
    for name, path in _files(settings).items():
        if name in items and _came_along(path, settings.project_dir):
            contents[name] = content = _content(name, path)
            items[name] += _says(name, content)
            digests[name] += _digest(content)
    return TrustRequest(settings, items, digests, contents)


def _files(settings: Settings) -> dict[str, Path]:
    """Return the files that settings name and that matter by their content, those that exist."""
    manifest, ssh_config = settings.allocation.manifest, settings.cluster.ssh_config
    found = {} if ssh_config is None else {_SSH_CONFIG: ssh_config}
    if manifest is not None and (path := Path(settings.project_dir, manifest)).exists():
        found[_MANIFEST] = path
    return found


def _says(name: str, content: bytes) -> str:
    if name == _MANIFEST:
        return f", as it is now ({len(content.splitlines())} lines: read them)"
    text = content.decode("utf-8", "backslashreplace")
    return ", which says: " + shown(text.strip().replace("\n", "; "))


def _copy(content: bytes, name: str) -> Path:
    """Write the content, under its own digest, into the state directory."""
    trust = private_directory(state_root() / "trust")
    copy = private_directory(trust / _digest(content)[:32]) / name
    write_private(copy, content.decode("utf-8", "surrogateescape"))
    return copy


def forget(settings: Settings) -> bool:
    """Delete the agreement; return False if there was none."""
    with contextlib.suppress(FileNotFoundError):
        _record(settings).unlink()
        return True
    return False


def _came_along(path: Path, root: Path) -> bool:
    """True if the file lies in the project, so the project's history may change it."""
    return path.is_relative_to(root) or path.resolve().is_relative_to(root.resolve())


def _content(name: str, path: Path) -> bytes:
    what = f"the project's {name.partition('.')[2]} {shown(str(path))}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(0, "it is no plain file")
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{what} can't be read",
            cause=error.strerror,
            hint=f"correct {name} in tunnelkit.toml",
        ) from None
    if len(data) > _MOST_BYTES:
        hint = "take out what is not needed"
        raise ConfigError(f"{what} can't be used", cause="it is over 1 MiB", hint=hint)
    if name == _SSH_CONFIG and _INCLUDE.search(data):
        raise ConfigError(
            f"{what} can't be used",
            cause="it includes other files: what it says can't be shown whole",
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
