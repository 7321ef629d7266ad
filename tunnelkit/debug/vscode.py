"""VS Code's tasks.json and launch.json: F5 that waits for tk, then attaches.

Existing files are merged: only the values that tk owns are touched (see `_owned_*`),
everything else, comments and layout included, stays byte for byte.
Why a foreground task before the attach: a background one needs problem matchers
and still lets F5 go ahead when it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunnelkit.debug import jsonc, jsonc_edit
from tunnelkit.debug.files import FileChange, apply, read_bytes
from tunnelkit.errors import DebugError

__all__ = ["ATTACH_NAME", "READY_LABEL", "FileChange", "apply", "plan"]

READY_LABEL = "tk: ready"
ATTACH_NAME = "tk: attach"

#: A place in a document: keys and indexes from the root.
Place = tuple[str | int, ...]
#: One value to set there.
Assignment = tuple[Place, object]


@dataclass(frozen=True, slots=True)
class _File:
    """One of the two files: our entry is found in the list `list_key` by `id_key`."""

    name: str
    version: str
    list_key: str
    id_key: str
    entry: dict[str, Any]
    owned: Callable[[dict[str, Any], dict[str, Any]], list[Assignment]]


def plan(
    project_dir: Path,
    *,
    port: int,
    remote_root: str,
    just_my_code: bool,
    tk_command: str = "tk",
    subdir: str = "",
) -> list[FileChange]:
    """The changes that make F5 in `project_dir` attach to 127.0.0.1:`port`.

    remote_root: absolute path of the project on the cluster. subdir: where the
    project is inside `project_dir`, if VS Code opens a directory above it.
    Raises DebugError, naming file, line and column, if a file can't be understood;
    nothing is written before `apply`.
    """
    _check_remote_root(remote_root)
    files = (_tasks(tk_command, subdir), _launch(port, remote_root, just_my_code, subdir))
    return [_plan_file(project_dir / ".vscode" / file.name, file) for file in files]


def _check_remote_root(remote_root: str) -> None:
    if not remote_root.startswith("/") or not remote_root.isprintable():
        raise DebugError(
            f"{remote_root!r} can't stand in pathMappings",
            cause="VS Code needs the absolute path on the cluster",
            hint="set an absolute `remote` under [mirror], or run `tk vscode` during a session",
        )


def _local_root(subdir: str) -> str:
    return "${workspaceFolder}" + (f"/{subdir}" if subdir else "")


def _tasks(tk_command: str, subdir: str) -> _File:
    entry: dict[str, Any] = {
        "label": READY_LABEL,
        "type": "process",
        "command": tk_command,
        "args": ["ready", "--sync"],
        "problemMatcher": [],
        "presentation": {"reveal": "silent", "showReuseMessage": False, "clear": True},
    }
    if subdir:
        entry["options"] = {"cwd": _local_root(subdir)}
    return _File("tasks.json", "2.0.0", "tasks", "label", entry, _owned_task)


def _launch(port: int, remote_root: str, just_my_code: bool, subdir: str) -> _File:
    entry: dict[str, Any] = {
        "name": ATTACH_NAME,
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        "pathMappings": [{"localRoot": _local_root(subdir), "remoteRoot": remote_root}],
        "justMyCode": just_my_code,
        "preLaunchTask": READY_LABEL,
    }
    return _File("launch.json", "0.2.0", "configurations", "name", entry, _owned_configuration)


def _owned_task(entry: dict[str, Any], found: dict[str, Any]) -> list[Assignment]:
    return [(("command",), entry["command"]), (("args",), entry["args"])]


def _owned_configuration(entry: dict[str, Any], found: dict[str, Any]) -> list[Assignment]:
    connect = entry["connect"]
    whole = not isinstance(found.get("connect"), dict)
    return [
        (("connect",), connect) if whole else (("connect", "port"), connect["port"]),
        _owned_mapping(entry["pathMappings"][0], found.get("pathMappings")),
        (("preLaunchTask",), entry["preLaunchTask"]),
    ]


def _owned_mapping(mapping: dict[str, str], found: Any) -> Assignment:
    """The remote root of the mapping of our directory; a person's own mappings stay."""
    if not isinstance(found, list):
        return ("pathMappings",), [mapping]
    for index, one in enumerate(found):
        local_root = one.get("localRoot") if isinstance(one, dict) else None
        if isinstance(local_root, str) and local_root.rstrip("/") == mapping["localRoot"]:
            return ("pathMappings", index, "remoteRoot"), mapping["remoteRoot"]
    return ("pathMappings", len(found)), mapping


def _plan_file(path: Path, file: _File) -> FileChange:
    before = read_bytes(path)
    text = "" if before is None else _decode(path, before)
    try:
        after = _merge(path, text, file)
    except jsonc.JsoncError as error:
        raise DebugError(
            f"{path}:{error.line}:{error.column}: not valid JSON with comments",
            cause=error.reason,
            hint="correct that place; nothing was changed",
        ) from None
    return FileChange(path, before, after.encode())


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        where = jsonc.JsoncError("", data[: error.start].decode(), error.start)
        raise DebugError(
            f"{path}:{where.line}: not UTF-8 text", hint="save the file as UTF-8; nothing changed"
        ) from None


def _merge(path: Path, text: str, file: _File) -> str:
    root = jsonc.parse(text)
    if root is None:
        return _fresh(text, file)
    if not isinstance(root, jsonc.Object):
        raise jsonc.JsoncError("expected an object, { ... }", text, root.start)
    listed = root.get(file.list_key)
    if listed is None:
        if root.get("version") is None:
            text = _assign(text, ("version",), file.version)
        return _assign(text, (file.list_key,), [file.entry])
    if not isinstance(listed, jsonc.Array):
        raise jsonc.JsoncError(f"expected a list for {file.list_key!r}", text, listed.start)
    ours = [
        index
        for index, item in enumerate(listed.items)
        if isinstance(item, jsonc.Object)
        and jsonc.same(item.get(file.id_key) or item, file.entry[file.id_key])
    ]
    if not ours:
        return _assign(text, (file.list_key, len(listed.items)), file.entry)
    for index in ours:
        found = jsonc.to_python(listed.items[index])
        assert isinstance(found, dict)
        for place, value in file.owned(file.entry, found):
            text = _assign(text, (file.list_key, index, *place), value)
    return text


def _fresh(text: str, file: _File) -> str:
    """A whole new document, after whatever comments the file held."""
    style = jsonc_edit.style_of(text, None)
    document = {"version": file.version, file.list_key: [file.entry]}
    lead = "" if not text or text.endswith(("\n", "\r", "\ufeff")) else style.eol
    return text + lead + jsonc_edit.render(document, style) + style.eol


def _assign(text: str, place: Place, value: object) -> str:
    """The text with `value` at `place`; an index equal to a list's length appends."""
    root = jsonc.parse(text)
    assert root is not None
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
