"""Cluster profiles: the user's own first, then the ones that ship with tk.

A shipped profile that holds only comments explains something (how `lab` comes
about, what PBS users can do today); choosing it is an error that says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tunnelkit.config import toml_source
from tunnelkit.config.value_kinds import BadValue, profile_name
from tunnelkit.errors import ConfigError

_GUIDANCE_HINTS = {
    "lab": "run `tk lab up`, which writes this profile; done with the lab: unset TK_PROFILE"
}


def user_config_dir(environ: Mapping[str, str] | None = None) -> Path:
    """tk's directory of the user's own files: $TK_CONFIG_DIR, else the platform's place."""
    given = (os.environ if environ is None else environ).get("TK_CONFIG_DIR")
    if given:
        return Path(os.path.abspath(os.path.expanduser(given)))
    import platformdirs  # here, so that commands that read no profile don't pay for it

    return platformdirs.user_config_path("tunnelkit")


def shipped_dir() -> Path:
    """The directory of the profiles that come with tk: package data, or configs/ of a checkout."""
    here = Path(__file__).parent
    inside = (here / "shipped").resolve()  # in a checkout a link to configs/
    return inside if inside.is_dir() else here.parent.parent / "configs"


def directories(environ: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """The directories that are searched, in order."""
    return user_config_dir(environ) / "clusters", shipped_dir()


def names(environ: Mapping[str, str] | None = None) -> list[str]:
    """The names of all profiles, sorted."""
    found = set()
    for directory in directories(environ):
        if directory.is_dir():
            found |= {path.stem for path in directory.glob("*.toml")}
    return sorted(found)


def find(name: str, *, chosen_by: str, environ: Mapping[str, str] | None = None) -> Path:
    """The file of the profile `name`, which `chosen_by` (an origin) asked for.

    Raises ConfigError, with the nearest right name, if there is none.
    """
    try:
        profile_name(name)
    except BadValue as error:
        raise ConfigError(f"{chosen_by}: {error.reason}", hint=error.hint) from None
    for directory in directories(environ):
        path = directory / f"{name}.toml"
        if os.path.isfile(path):
            return path
    raise _unknown(name, chosen_by, environ)


def _unknown(name: str, chosen_by: str, environ: Mapping[str, str] | None) -> ConfigError:
    import difflib

    known = names(environ)
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"write {directories(environ)[0] / (name + '.toml')}, or use one of: " + ", ".join(
            known
        )
    return ConfigError(f"{chosen_by}: there is no cluster profile {name!r}", hint=hint)


def read(
    name: str, *, chosen_by: str, environ: Mapping[str, str] | None = None
) -> toml_source.TomlDocument:
    """The profile `name`; raises ConfigError if it isn't there, or only explains something."""
    path = find(name, chosen_by=chosen_by, environ=environ)
    document = toml_source.read(path)
    if not document.values and path.parent == shipped_dir():
        raise ConfigError(
            f"{chosen_by}: the profile {name!r} holds no settings, only an explanation",
            hint=_GUIDANCE_HINTS.get(name, f"read {path}"),
        )
    return document
