"""Reading the configuration: defaults < profile < tunnelkit.toml < environment < flags.

Every layer is checked whole, also the values that a higher layer covers: a typo is reported when it
is made, not when it first matters.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from tunnelkit.config import profiles
from tunnelkit.config.mirror_roots import check_apart
from tunnelkit.config.profiles import user_config_dir
from tunnelkit.config.project import FILE_NAME, find_project
from tunnelkit.config.schema import KEYS, SECTIONS, Key, Origin, OriginKind, Settings, build
from tunnelkit.config.toml_source import TomlDocument, read
from tunnelkit.config.unknown_keys import unknown_key, unknown_variable
from tunnelkit.config.value_kinds import BadValue
from tunnelkit.errors import ConfigError

__all__ = ["FILE_NAME", "assemble", "find_project", "load", "user_config_dir"]

#: One layer: values and origins by dotted key.
Layer = dict[str, tuple[object, Origin]]


def load(
    cwd: Path,
    *,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> Settings:
    """All settings for a command called in `cwd`. Raises ConfigError.

    overrides: flags, by dotted key (`allocation.gpus`); text or typed values; None
    means that the flag was not given. environ: os.environ if None. config_file: this
    file instead of the tunnelkit.toml found upward.
    """
    cwd = Path(os.path.abspath(cwd))
    if config_file is not None:
        config_file = Path(os.path.abspath(cwd / os.path.expanduser(config_file)))
        return assemble(
            config_file.parent, read(config_file), cwd=cwd, overrides=overrides, environ=environ
        )
    project_dir = find_project(cwd)
    document = None
    if project_dir is not None:
        _check_owner(project_dir / FILE_NAME, cwd)
        document = read(project_dir / FILE_NAME)
    return assemble(project_dir or cwd, document, cwd=cwd, overrides=overrides, environ=environ)


def _check_owner(path: Path, cwd: Path) -> None:
    """Refuse a stranger's file: in a directory that all can write, one tunnelkit.toml above
    would choose the programs that ssh runs for everybody below."""
    me = os.geteuid()
    trusted = {0, me}
    if me == 0:
        with contextlib.suppress(FileNotFoundError):  # cwd may be gone
            trusted.add(cwd.stat().st_uid)  # root at work in somebody's own tree
    if path.stat().st_uid not in trusted:
        raise ConfigError(
            f"{path} belongs to another user",
            cause="a configuration can make ssh run programs",
            hint="if you trust it, copy it to your project directory",
        )


def assemble(
    project_dir: Path,
    document: TomlDocument | None,
    *,
    cwd: Path,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from a project's document (None: there is none) and the other layers."""
    environ = os.environ if environ is None else environ
    layers = [_from_environment(environ, cwd), _from_overrides(overrides or {}, cwd)]
    if document is not None:
        layers.insert(0, _from_document(document, "project"))
    chosen = _merge([layer for layer in layers if "profile" in layer]).get("profile")
    if chosen is not None:
        name, origin = chosen
        profile = profiles.read(str(name), chosen_by=str(origin), environ=environ)
        layers.insert(0, _from_document(profile, "profile"))
    merged = _merge([_defaults(project_dir), *layers])
    settings = build(
        {name: value for name, (value, _) in merged.items()},
        {name: origin for name, (_, origin) in merged.items()},
        project_dir=project_dir,
        config_file=None if document is None else document.path,
    )
    _check_ports(settings)
    if settings.mirror.also:
        check_apart(settings.mirror_specs(), str(settings.origins["mirror.also"]))
    return settings


def _merge(layers: list[Layer]) -> Layer:
    merged: Layer = {}
    for layer in layers:
        merged |= layer
    return merged


def _defaults(project_dir: Path) -> Layer:
    name = re.sub(r"[^\w.+@ -]", "_", project_dir.name).strip()
    if name in ("", ".", ".."):
        name = "project"
    return {"mirror.remote": (posixpath.join("~/tk", name), Origin())}


def _from_document(document: TomlDocument, kind: OriginKind) -> Layer:
    layer: Layer = {}
    for name, raw in document.values.items():
        if name in SECTIONS:
            if not isinstance(raw, dict):
                raise ConfigError(
                    f"{document.place(name)}: {name} is a section", hint=f"write [{name}]"
                )
            flat = {f"{name}.{key}": value for key, value in raw.items()}
        else:
            flat = {name: raw}
        for dotted, value in flat.items():
            place = document.place(dotted)
            if dotted not in KEYS:
                raise unknown_key(
                    place, dotted, is_section=name == dotted and isinstance(raw, dict)
                )
            if dotted == "profile" and kind == "profile":
                raise ConfigError(
                    f"{place}: a profile can't choose a profile",
                    hint="`profile` belongs in tunnelkit.toml, TK_PROFILE or --profile",
                )
            checked = _check(KEYS[dotted], value, place, document.path.parent)
            layer[dotted] = (
                checked,
                Origin(kind, str(document.path), document.lines.get(dotted)),
            )
    return layer


def _from_environment(environ: Mapping[str, str], base: Path) -> Layer:
    """`TK_` variables. An empty one counts as not set, as shells make it easy to leave one."""
    keys = {key.variable: key for key in KEYS.values()}
    layer: Layer = {}
    for variable, text in environ.items():
        key = keys.get(variable)
        if key is None:
            _refuse_unknown(variable, list(keys))
        elif text:
            value = _check_text(key, text, variable, base)
            layer[key.name] = (value, Origin("environment", variable))
    return layer


def _refuse_unknown(variable: str, known: list[str]) -> None:
    """Within our sections an unknown name is a typo; other TK_ names may be anyone's."""
    if variable.startswith(tuple(f"TK_{section.upper()}_" for section in SECTIONS)):
        raise unknown_variable(variable, known)


def _from_overrides(overrides: Mapping[str, object], base: Path) -> Layer:
    layer: Layer = {}
    for name, raw in overrides.items():
        if raw is None:
            continue
        key = KEYS.get(name)
        if key is None:
            raise unknown_key("flags", name)
        if isinstance(raw, str):
            value = _check_text(key, raw, key.flag, base)
        else:
            value = _check(key, raw, key.flag, base)
        layer[name] = (value, Origin("flag", key.flag))
    return layer


def _check_text(key: Key, text: str, place: str, base: Path) -> object:
    try:
        raw = key.kind.from_text(text)
    except BadValue as error:
        raise _refusal(key, place, error) from None
    return _check(key, raw, place, base)


def _check(key: Key, raw: object, place: str, base: Path) -> object:
    """The checked value; relative paths start at `base`, where they were written."""
    try:
        value = key.kind.parse(raw)
    except BadValue as error:
        raise _refusal(key, place, error) from None
    if isinstance(value, Path):
        value = Path(os.path.abspath(base / os.path.expanduser(value)))
    return value


def _refusal(key: Key, place: str, error: BadValue) -> ConfigError:
    return ConfigError(
        f"{place}: bad value for {key.name}",
        cause=error.reason,
        hint=error.hint or "correct it there",
    )


def _check_ports(settings: Settings) -> None:
    """No two listeners of one session on the same local port."""
    taken = {settings.debug.port: "the debug port"}
    for forward in settings.all_forwards:
        if forward.bind_port in taken:
            key = "shared_forwards" if forward.shared else "forwards"
            raise ConfigError(
                f"{settings.origins[key]}: forward {forward} wants local port "
                f"{forward.bind_port}, which is {taken[forward.bind_port]}",
                hint="choose another local port: L:R",
            )
        taken[forward.bind_port] = f"already that of {forward}"
