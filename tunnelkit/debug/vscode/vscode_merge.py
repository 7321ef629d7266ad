"""A document of VS Code's (JSON with comments) made to hold tk's entries.

Entries are found in their list by name; of one that is there only the values that tk owns
are touched. Everything else, comments and layout included, stays byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunnelkit.debug.vscode import jsonc, jsonc_edit
from tunnelkit.errors import DebugError
from tunnelkit.file_changes import FileChange, read_bytes

__all__ = [
    "Assignment",
    "JsoncDocument",
    "Place",
    "Section",
    "Values",
    "WantedEntry",
    "listed",
    "plan_file",
]

#: A place in a document: keys and indexes from the root.
Place = tuple[str | int, ...]
#: One value to set there.
Assignment = tuple[Place, object]
#: An entry of the document, as plain values.
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WantedEntry:
    """An entry that tk wants in a list. owned: the values to set in one that is there already.

    same: true for an entry of another name that is this one; `owned` renames it.
    """

    values: Values
    owned: Callable[[Values, Values], list[Assignment]]
    same: Callable[[Values], bool] = lambda found: False


@dataclass(frozen=True, slots=True)
class Section:
    """A list of the document, whose entries are identified by `id_key`.

    surplus: true for an entry of the file that tk wrote and does not want any more.
    """

    list_key: str
    id_key: str
    entries: Sequence[WantedEntry]
    surplus: Callable[[Values], bool] = lambda found: False


@dataclass(frozen=True, slots=True)
class JsoncDocument:
    """One of VS Code's files; `version` is for a new one."""

    name: str
    version: str
    sections: Sequence[Section]


def plan_file(path: Path, document: JsoncDocument) -> FileChange:
    """The change that `path` needs. Raises DebugError, naming the place, if it can't be read."""
    before = read_bytes(path)
    text = "" if before is None else _decode(path, before)
    try:
        after = _merge(text, document)
    except jsonc.JsoncError as error:
        raise DebugError(
            f"{path}:{error.line}:{error.column}: not valid JSON with comments",
            cause=error.reason,
            hint="correct that place; nothing was changed",
        ) from None
    return FileChange(path, before, after.encode())


def listed(path: Path, list_key: str) -> list[Values]:
    """The entries of a list of a file; none if the file is not there or malformed."""
    data = read_bytes(path)
    try:
        root = None if data is None else jsonc.parse(data.decode())
    except ValueError:
        return []
    return [] if root is None else _values(root, list_key)


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        where = jsonc.JsoncError("", data[: error.start].decode(), error.start)
        raise DebugError(
            f"{path}:{where.line}: not UTF-8 text", hint="save the file as UTF-8; nothing changed"
        ) from None


class _Draft:
    """A text on its way, and the tree of it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = jsonc.parse(text)

    def become(self, text: str) -> None:
        if text != self.text:
            self.text, self.root = text, jsonc.parse(text)

    def assign(self, place: Place, value: object) -> None:
        assert self.root is not None
        self.become(_assign(self.text, self.root, place, value))

    def array(self, key: str) -> jsonc.Node | None:
        assert isinstance(self.root, jsonc.Object)
        return self.root.get(key)


def _merge(text: str, document: JsoncDocument) -> str:
    draft = _Draft(text)
    if draft.root is None:
        return _fresh(text, document)
    if not isinstance(draft.root, jsonc.Object):
        raise jsonc.JsoncError("expected an object, { ... }", text, draft.root.start)
    if draft.array(document.sections[0].list_key) is None and draft.root.get("version") is None:
        draft.assign(("version",), document.version)
    for section in document.sections:
        _merge_section(draft, section)
        _remove_surplus(draft, section)
    return draft.text


def _merge_section(draft: _Draft, section: Section) -> None:
    found = draft.array(section.list_key)
    if found is None:
        if section.entries:
            draft.assign((section.list_key,), [entry.values for entry in section.entries])
        return
    if not isinstance(found, jsonc.Array):
        raise jsonc.JsoncError(f"expected a list for {section.list_key!r}", draft.text, found.start)
    for entry in section.entries:
        _merge_entry(draft, section, entry)


def _merge_entry(draft: _Draft, section: Section, entry: WantedEntry) -> None:
    found = _values(draft.root, section.list_key)
    name = entry.values[section.id_key]
    ours = [at for at, one in enumerate(found) if one.get(section.id_key) == name]
    if not ours:
        ours = [at for at, one in enumerate(found) if one and entry.same(one)][:1]
    if not ours:
        draft.assign((section.list_key, len(found)), entry.values)
    for at in ours:
        for place, value in entry.owned(entry.values, found[at]):
            draft.assign((section.list_key, at, *place), value)


def _remove_surplus(draft: _Draft, section: Section) -> None:
    found = _values(draft.root, section.list_key)
    # From the last, so that the others keep their places.
    for at in reversed(range(len(found))):
        array = draft.array(section.list_key)
        if found[at] and section.surplus(found[at]) and isinstance(array, jsonc.Array):
            draft.become(jsonc_edit.remove_item(draft.text, array, at))


def _values(root: jsonc.Node | None, list_key: str) -> list[Values]:
    """The items of a list; `{}` in place of one that is no object."""
    array = root.get(list_key) if isinstance(root, jsonc.Object) else None
    if not isinstance(array, jsonc.Array):
        return []
    plain = [jsonc.to_python(item) for item in array.items]
    return [item if isinstance(item, dict) else {} for item in plain]


def _fresh(text: str, document: JsoncDocument) -> str:
    """A whole new document, after whatever comments the file held."""
    style = jsonc_edit.style_of(text, None)
    lists = {
        one.list_key: [entry.values for entry in one.entries]
        for one in document.sections
        if one.entries
    }
    lead = "" if not text or text.endswith(("\n", "\r", "\ufeff")) else style.eol
    whole = {"version": document.version, **lists}
    return text + lead + jsonc_edit.render(whole, style) + style.eol


def _assign(text: str, root: jsonc.Node, place: Place, value: object) -> str:
    """The text with `value` at `place`; an index equal to a list's length appends."""
    style = jsonc_edit.style_of(text, root)
    node: jsonc.Node = root
    for depth, step in enumerate(place):
        child = _child(node, step)
        if child is not None:
            node = child
            continue
        rest = _wrap(place[depth + 1 :], value)
        if isinstance(node, jsonc.Object) and isinstance(step, str):
            return jsonc_edit.append_member(text, node, step, rest, style)
        if isinstance(node, jsonc.Array) and step == len(node.items):
            return jsonc_edit.append_item(text, node, rest, style)
        return jsonc_edit.replace(text, node, _wrap(place[depth:], value), style)
    return text if jsonc.same(node, value) else jsonc_edit.replace(text, node, value, style)


def _child(node: jsonc.Node, step: str | int) -> jsonc.Node | None:
    if isinstance(node, jsonc.Object) and isinstance(step, str):
        return node.get(step)
    if isinstance(node, jsonc.Array) and isinstance(step, int) and step < len(node.items):
        return node.items[step]
    return None


def _wrap(steps: Sequence[str | int], value: object) -> object:
    for step in reversed(steps):
        value = {step: value} if isinstance(step, str) else [value]
    return value
