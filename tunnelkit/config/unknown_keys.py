"""Unknown keys, sections and variables: the error, with the nearest right name."""

from __future__ import annotations

from collections.abc import Iterable

from tunnelkit.config.schema import KEYS, SECTIONS
from tunnelkit.errors import ConfigError


def unknown_key(place: str, dotted: str, *, is_section: bool = False) -> ConfigError:
    """The error for a key (dotted) or section that doesn't exist, at `place`."""
    section, _, name = dotted.rpartition(".")
    if is_section:
        known = ", ".join(f"[{one}]" for one in SECTIONS)
        near = _nearest(dotted, [*SECTIONS, *_bare_names("")])
        hint = f"did you mean {_written(near)}?" if near else f"known sections: {known}"
        return ConfigError(f"{place}: unknown section [{dotted}]", hint=hint)
    where = f" in [{section}]" if section else ""
    return ConfigError(f"{place}: unknown key {name!r}{where}", hint=_key_hint(section, name))


def unknown_variable(variable: str, known: list[str]) -> ConfigError:
    """The error for an environment variable that looks like one of tk's but isn't."""
    near = _nearest(variable, known)
    hint = f"did you mean {near}?" if near else "unset it; `tk config show --json` lists the keys"
    return ConfigError(f"environment: unknown variable {variable}", hint=hint)


def _key_hint(section: str, name: str) -> str:
    near = _nearest(name, _bare_names(section))
    if near:
        return f"did you mean {near!r}?"
    elsewhere = [key for key in KEYS if key.rpartition(".")[2] == name]
    elsewhere = elsewhere or _by_nearest_bare_name(name)
    if elsewhere:
        right_section, _, right = elsewhere[0].rpartition(".")
        place = f"under [{right_section}]" if right_section else "at the top of the file"
        return f"did you mean {right!r} {place}?"
    return "known keys: " + ", ".join(_bare_names(section))


def _by_nearest_bare_name(name: str) -> list[str]:
    near = _nearest(name, [key.rpartition(".")[2] for key in KEYS])
    return [key for key in KEYS if near and key.rpartition(".")[2] == near]


def _bare_names(section: str) -> list[str]:
    return [key.name.rpartition(".")[2] for key in KEYS.values() if key.section == section]


def _nearest(name: str, known: Iterable[str]) -> str | None:
    import difflib  # here, since every tk command imports this module and few have an error

    found = difflib.get_close_matches(name.lower(), list(known), n=1)
    if not found:
        # Variables are upper case; lower-casing both sides would lose the right spelling.
        found = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else None


def _written(name: str) -> str:
    return f"[{name}]" if name in SECTIONS else repr(name)
