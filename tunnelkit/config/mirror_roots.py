"""`[[mirror.also]]`: more directories that are mirrored, each to a place of its own."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from tunnelkit.config import value_kinds as v
from tunnelkit.errors import ConfigError
from tunnelkit.model import MirrorSpec

Symlinks = Literal["keep", "ignore"]
SYMLINKS = v.choice("keep", "ignore")


@dataclass(frozen=True, slots=True)
class AlsoRoot:
    """One of them. local: absolute, `~/...` or relative to the project; symlinks None: as
    [mirror] has it."""

    local: str
    remote: str
    exclude: tuple[str, ...] = ()
    symlinks: Symlinks | None = None

    def place(self, project_dir: Path) -> str:
        """The directory, absolute."""
        return os.path.abspath(project_dir / os.path.expanduser(self.local))


_KINDS: Mapping[str, v.ValueKind] = {
    "local": v.ValueKind(v.single_line),
    "remote": v.REMOTE_DIR,
    "exclude": v.LINES,
    "symlinks": SYMLINKS,
}


def _root(raw: object) -> AlsoRoot:
    if not isinstance(raw, dict):
        raise v.BadValue(
            f"expected a table, got {v.type_name(raw)}",
            "write [[mirror.also]], and local and remote below it",
        )
    unknown = [name for name in raw if name not in _KINDS]
    if unknown:
        raise v.BadValue(f"unknown key {unknown[0]!r}", f"known keys: {', '.join(_KINDS)}")
    found: dict[str, Any] = {}
    for name, value in raw.items():
        try:
            found[name] = _KINDS[name].parse(value)
        except v.BadValue as error:
            raise v.BadValue(f"{name}: {error.reason}", error.hint) from None
    for name in ("local", "remote"):
        if name not in found:
            raise v.BadValue(f"{name} is missing", "each needs local and remote")
    return AlsoRoot(**found)


def _written(root: AlsoRoot) -> dict[str, object]:
    values = ((one.name, getattr(root, one.name)) for one in fields(root))
    return {name: _KINDS[name].dump(value) for name, value in values if value}


#: As text: a TOML array, [{local = "../lib", remote = "~/tk/lib"}].
ROOTS = v.list_of(_root, dump=_written)


def check_apart(specs: Sequence[MirrorSpec], where: str) -> None:
    """Refuse roots of which one is, holds or lies in another, here or on the cluster as far
    as their names tell. where: what says so. Raises ConfigError."""
    real = [os.path.realpath(spec.local_dir) for spec in specs]
    for number, spec in enumerate(specs):
        for other in range(number):
            first = specs[other].name or "the project"
            for one, two, what in (
                (real[number], real[other], f"{spec.name!r}"),
                (spec.remote_dir, specs[other].remote_dir, f"remote of {spec.name!r}"),
            ):
                how = nested(one, two)
                if how is not None:
                    raise ConfigError(
                        f"{where}: {what}, {one}, {how} {two}, which is mirrored for {first}",
                        cause="two mirrors would write or read the same files",
                        hint="choose directories of which none lies in another",
                    )


def nested(one: str, other: str) -> str | None:
    """The relation of a directory to another: "is", "lies in", "holds".

    None if they are apart, or if one begins at home and the other at the root.
    """
    first, second = (posixpath.normpath(path) for path in (one, other))
    if first == second:
        return "is"
    if first.startswith(second.rstrip("/") + "/"):
        return "lies in"
    return "holds" if second.startswith(first.rstrip("/") + "/") else None
