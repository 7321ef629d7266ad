"""The settings that a project's tunnelkit.toml may not decide before the user has agreed.

`git clone` makes such a file the user's own, so its owner says nothing about its author.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from tunnelkit.config.mirror_roots import nested
from tunnelkit.config.schema import KEYS, Settings
from tunnelkit.config.toml_source import dump
from tunnelkit.errors import ConfigError
from tunnelkit.text_format import shown

#: Keys that make laptop or cluster run or send something. A test holds that each key is here
#: or in HARMLESS.
RISKY = frozenset(
    {
        "cluster.login",
        "cluster.jump",
        "cluster.ssh_config",
        "cluster.python",
        "cluster.directory",
        "cluster.prologue",
        "cluster.context",
        "cluster.namespace",
        "cluster.kubectl",
        "allocation.extra",
        "allocation.pod",
        "allocation.image",
        "allocation.manifest",
        "debug.preload",
        "mirror.remote",
        "mirror.also",
        "shared_forwards",
    }
)
#: profile: it only chooses among the user's own files and those that come with tk.
HARMLESS = frozenset(
    {
        "profile",
        "forwards",
        "cluster.link",
        "cluster.scheduler",
        "cluster.node_ssh",
        "cluster.container",
        "allocation.partition",
        "allocation.account",
        "allocation.qos",
        "allocation.constraint",
        "allocation.reservation",
        "allocation.exclusive",
        "allocation.requeue",
        "allocation.mem",
        "allocation.gpus",
        "allocation.cpus",
        "allocation.nodes",
        "allocation.time",
        "allocation.black_box",
        "allocation.gpu_resource",
        "allocation.queue",
        "mirror.enabled",
        "mirror.exclude",
        "mirror.delete_limit",
        "mirror.symlinks",
        "debug.port",
        "debug.standby",
        "debug.on_disconnect",
        "debug.post_mortem",
        "debug.collective_timeouts",
        "debug.just_my_code",
        "debug.read_ahead",
    }
)
#: Never mirrored for a project's file, nor what holds them or lies in them.
_SECRET = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".config", ".kube", ".docker", ".netrc", ".pki"),
    *(".password-store", ".mozilla", ".thunderbird", ".pgpass", ".git-credentials", ".npmrc"),
    *(".pypirc", ".local/share/keyrings", ".local/state/tunnelkit", ".vault-token"),
    *("Library/Keychains", "Library/Application Support"),
)
#: Not hidden, and nothing that a shell would obey, wherever the name gets.
_PLAIN_NAME = re.compile(r"[\w+@-][\w.+@ -]*")
_DOT_OF_A_HOME = re.compile(r"(?:~|/root|/(?:home|Users|u|users)/[^/]+)/\.[^/]")


def asks_for(settings: Settings) -> dict[str, str]:
    """The risky keys that the project's file decides, with their values for people: nothing
    in them that a terminal would obey."""
    found = {
        name: shown(dump(settings.written(name)))
        for name in sorted(RISKY)
        if settings.origins[name].kind == "project" and not _is_plain(settings, name)
    }
    if found and settings.origins["profile"].kind == "project":
        found["profile"] = shown(dump(settings.written("profile")))
    return found


def _is_plain(settings: Settings, name: str) -> bool:
    value = settings.value(name)
    if name == "cluster.directory":
        return bool(value == KEYS[name].default)
    if name == "mirror.remote":
        parts = posixpath.normpath(str(value)).split("/")
        named = all(_PLAIN_NAME.fullmatch(part) for part in parts[1:])
        return parts[:2] == ["~", "tk"] and len(parts) > 2 and named
    return value in (None, (), "")


def check_places(settings: Settings, *, all_of_it: bool = False) -> None:
    """Refuse places that no project's file may name, agreed or not. all_of_it: as if all stood
    in that file. Raises ConfigError."""

    def from_file(name: str) -> bool:
        return all_of_it or settings.origins[name].kind == "project"

    if settings.config_file is None and not all_of_it:
        return
    where = str(settings.config_file or settings.project_dir)
    _check_local(where, "the project's directory", str(settings.project_dir))
    if from_file("mirror.remote"):
        _check_remote(where, settings.mirror.remote)
    for root in settings.mirror.also if from_file("mirror.also") else ():
        _check_local(
            where,
            f"local of [[mirror.also]] {shown(root.local)!r}",
            root.place(settings.project_dir),
            dots=True,
        )
        _check_remote(where, root.remote)


def _check_local(where: str, what: str, path: str, *, dots: bool = False) -> None:
    real = os.path.realpath(path)
    for secret in _secrets():
        how = nested(real, secret)
        if how is not None:
            raise _refusal(where, f"{what} {how} {shown(secret)}")
    below = os.path.relpath(real, os.path.realpath(Path.home())).split(os.sep)
    if dots and below[0] not in (".", "..") and below[0].startswith("."):
        raise _refusal(where, f"{what} lies in a dot directory of your home")


def _secrets() -> Iterator[str]:
    home = Path.home()
    for name in _SECRET:
        if os.path.lexists(home / name):
            yield os.path.realpath(home / name)


def _check_remote(where: str, remote: str) -> None:
    if _DOT_OF_A_HOME.match(posixpath.normpath(re.sub("^//+", "/", remote))):
        raise _refusal(where, f"remote {shown(remote)!r} lies in a dot directory of the home there")


def _refusal(where: str, cause: str) -> ConfigError:
    return ConfigError(
        f"{shown(where)}: a project's file may not have this mirrored",
        cause=cause,
        hint="choose another directory, or set it in a profile of your own",
    )
