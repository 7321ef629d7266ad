"""Launch record of a session: written for its process, kept for later sessions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tunnelkit.config.schema import KEYS, Settings
from tunnelkit.config.value_kinds import BadValue
from tunnelkit.errors import ConfigError, NoSessionError, UsageError
from tunnelkit.model import Hop
from tunnelkit.session.runtime.paths import SessionPaths, write_private


@dataclass(frozen=True)
class LaunchSpec:
    """The request of one `tk up`.

    node: the requested node; None: any node that the scheduler gives.
    take_over: True to take over the mirror's remote root from another laptop directory.
    attach_job: id of a job that the user submitted, used instead of a job of tk's own.
    """

    settings: Settings
    node: str | None
    take_over: bool = False
    attach_job: str | None = None

    @property
    def cluster_name(self) -> str | None:
        """The login host, or what stands for it; None if none is configured."""
        cluster = self.settings.cluster
        login = self.settings.require_cluster() if cluster.is_kubernetes else cluster.login
        return None if login is None else str(login)

    def save(self, path: Path) -> None:
        """Write the record for the session's process, 0600, atomically."""
        data = {
            # Also outside of the settings: another version of tk may not be able to read those.
            "login": self.cluster_name,
            "settings": self.settings.to_json(),
            "node": self.node,
            "take_over": self.take_over,
            "attach_job": self.attach_job,
        }
        write_private(path, json.dumps(data))

    @staticmethod
    def load(path: Path) -> LaunchSpec:
        """Read a file that `save` wrote. Raises NoSessionError if it is missing or unusable."""
        try:
            data = json.loads(path.read_text())
            settings = Settings.from_json(data["settings"])
            return LaunchSpec(
                settings, data["node"], bool(data.get("take_over")), data.get("attach_job")
            )
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            raise NoSessionError(
                "there is no earlier session here", cause=str(error), hint="start one: tk up"
            ) from None


@dataclass(frozen=True)
class LeftSession:
    """The launch record of an earlier session, perhaps of another version of tk.

    login, node, attach_job: None if not known.
    settings: those that this version can read; None if it can read none.
    """

    login: str | None = None
    node: str | None = None
    attach_job: str | None = None
    settings: Settings | None = None

    @staticmethod
    def load(path: Path) -> LeftSession | None:
        """Read a launch file of any version; None if there is no such file."""
        try:
            data = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return LeftSession()
        if not isinstance(data, dict):
            return LeftSession()
        settings = _readable(data.get("settings"))
        known = None if settings is None else settings.cluster.login
        login = _text(data.get("login")) or (None if known is None else str(known))
        return LeftSession(login, _text(data.get("node")), _text(data.get("attach_job")), settings)

    def launch(self, current: Callable[[], Settings]) -> LaunchSpec:
        """Return the LaunchSpec by which to find the session's leftovers on the cluster.

        current: returns today's settings; called if the earlier ones can't be read or lack a login.
        Raises the errors of `current`, ConfigError if the recorded login host is invalid.
        """
        settings = self.settings
        known = None if settings is None else settings.cluster
        if settings is None or known is None or (known.login is None and not known.is_kubernetes):
            settings = current()
            if self.login is not None and not settings.cluster.is_kubernetes:
                cluster = replace(settings.cluster, login=_hop(self.login))
                settings = replace(settings, cluster=cluster)
        return LaunchSpec(settings, self.node, attach_job=self.attach_job)


def project_of(paths: SessionPaths) -> str | None:
    """Return the project's directory of a session; None if its record does not tell."""
    left = LeftSession.load(paths.launch)
    if left is None or left.settings is None:
        return None
    return str(left.settings.project_dir)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _hop(login: str) -> Hop:
    try:
        return Hop(login)
    except UsageError as error:
        raise ConfigError(
            "the login host of the earlier session can't be read",
            cause=error.message,
            hint="look for its job on the cluster by hand",
        ) from None


def _readable(data: object) -> Settings | None:
    """Return the settings without the values that this version can't read; None if unusable."""
    if not isinstance(data, Mapping) or not isinstance(data.get("values"), Mapping):
        return None
    values = {name: raw for name, raw in data["values"].items() if name in KEYS}
    kept = {
        "project_dir": data.get("project_dir"),
        "config_file": data.get("config_file"),
        "values": {name: raw for name, raw in values.items() if _reads(name, raw)},
        "origins": {},
    }
    try:
        return Settings.from_json(kept)
    except ConfigError:
        return None


def _reads(name: str, raw: object) -> bool:
    if raw is None:
        return KEYS[name].default is None
    try:
        KEYS[name].kind.parse(raw)
    except (BadValue, TypeError, ValueError):
        return False
    return True
