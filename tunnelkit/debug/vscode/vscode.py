"""VS Code's tasks.json and launch.json: F5 that waits for tk, then attaches.

Existing files are merged (vscode_merge.py): only the values that tk owns are touched (see
`_owned_*`), everything else, comments and layout included, stays byte for byte.
Why a foreground task before the attach: a background one needs problem matchers
and still lets F5 go ahead when it fails.

With ranks, `tk: attach` alone opens a session for each of them. The launch configurations of
single ranks, and the compound of them, are for editors that open no child sessions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tunnelkit.debug.dap.session_facts import RANK_KEY
from tunnelkit.debug.vscode.vscode_merge import (
    Assignment,
    JsoncDocument,
    Section,
    Values,
    WantedEntry,
    listed,
    plan_file,
)
from tunnelkit.errors import DebugError, UsageError
from tunnelkit.file_changes import FileChange, apply
from tunnelkit.model import PathMapping

__all__ = ["ATTACH_NAME", "MAX_RANKS", "READY_LABEL", "FileChange", "apply", "attach_port", "plan"]

READY_LABEL = "tk: ready"
ATTACH_NAME = "tk: attach"
#: More launch configurations than this nobody would look through.
MAX_RANKS = 64
_RANK = re.compile(r"tk: rank (\d{1,3})")
_RANKS = re.compile(r"tk: ranks 0-\d{1,3}")


def plan(
    project_dir: Path,
    *,
    port: int,
    remote_root: str,
    just_my_code: bool,
    tk_command: str = "tk",
    subdir: str = "",
    ranks: int | None = None,
    also: Sequence[PathMapping] = (),
) -> list[FileChange]:
    """The changes that make F5 in `project_dir` attach to 127.0.0.1:`port`.

    remote_root: absolute path of the project on the cluster. subdir: where the
    project is inside `project_dir`, if VS Code opens a directory above it. ranks: how many
    ranks have a launch configuration of their own; below 2 none has, None: as many as now.
    also: further mirrored directories, as they are to stand in pathMappings.
    Raises DebugError, naming file, line and column, if a file can't be understood, and
    UsageError for ranks that have no port; nothing is written before `apply`.
    """
    for remote in (remote_root, *(one.remote_root for one in also)):
        _check_remote_root(remote)
    for local in (subdir, *(one.local_root.replace(_local_root(""), "") for one in also)):
        _check_local(local)
    folder = project_dir / ".vscode"
    if ranks is None:
        ranks = _ranks_in(folder / "launch.json")
    _check_ranks(ranks, port)
    mappings = [PathMapping(_local_root(subdir), remote_root), *also]
    attach = _attach(port, mappings, just_my_code)
    documents = (_tasks(tk_command, subdir), _launch(attach, ranks if ranks > 1 else 0))
    return [plan_file(folder / one.name, one) for one in documents]


def _check_remote_root(remote_root: str) -> None:
    # VS Code would run what `${command:...}` names, and the login host has said this path.
    if not remote_root.startswith("/") or not remote_root.isprintable() or "${" in remote_root:
        raise DebugError(
            f"{remote_root!r} can't stand in pathMappings",
            cause="VS Code needs the absolute path on the cluster, without its own variables",
            hint="set an absolute `remote` under [mirror], or run `tk vscode` during a session",
        )


def _check_local(path: str) -> None:
    """A clone may have a directory of any name. Raises DebugError."""
    if "${" in path or not path.isprintable():
        raise DebugError(
            f"{path!r} can't stand in pathMappings",
            cause="VS Code reads ${...} in it as a variable",
            hint="rename that directory",
        )


def _check_ranks(ranks: int, port: int) -> None:
    most = min(MAX_RANKS, 65536 - port)
    if not 0 <= ranks <= most:
        raise UsageError(
            f"{ranks} ranks can't have a launch configuration each",
            hint=f"at most {most}, on ports from {port}; F5 on {ATTACH_NAME!r} takes any number",
        )


def _local_root(subdir: str) -> str:
    return "${workspaceFolder}" + (f"/{subdir}" if subdir else "")


# -- what tk wants ------------------------------------------------------


def _tasks(tk_command: str, subdir: str) -> JsoncDocument:
    task: Values = {
        "label": READY_LABEL,
        "type": "process",
        "command": tk_command,
        "args": ["ready", "--sync"],
        "problemMatcher": [],
        "presentation": {"reveal": "silent", "showReuseMessage": False, "clear": True},
    }
    if subdir:
        task["options"] = {"cwd": _local_root(subdir)}
    return JsoncDocument(
        "tasks.json", "2.0.0", [Section("tasks", "label", [WantedEntry(task, _owned_task)])]
    )


def _attach(port: int, mappings: Sequence[PathMapping], just_my_code: bool) -> Values:
    return {
        "name": ATTACH_NAME,
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        "pathMappings": [
            {"localRoot": one.local_root, "remoteRoot": one.remote_root} for one in mappings
        ],
        "justMyCode": just_my_code,
        "preLaunchTask": READY_LABEL,
    }


def _launch(attach: Values, ranks: int) -> JsoncDocument:
    single = [_rank(attach, rank) for rank in range(ranks)]
    configurations = [
        WantedEntry(attach, _owned_configuration),
        *(WantedEntry(one, _owned_configuration) for one in single),
    ]
    wanted = [_compound(ranks)] if ranks else []
    compounds = [WantedEntry(one, _owned_compound, _is_compound) for one in wanted]
    return JsoncDocument(
        "launch.json",
        "0.2.0",
        [
            Section("configurations", "name", configurations, lambda one: _rank_of(one) >= ranks),
            Section(
                "compounds",
                "name",
                compounds,
                lambda one: _is_ours_alone(one) and one["name"] not in [w["name"] for w in wanted],
            ),
        ],
    )


def _rank(attach: Values, rank: int) -> Values:
    """One rank alone. The task is the compound's, which would run it for each of them."""
    shared = {key: value for key, value in attach.items() if key != "preLaunchTask"}
    connect = {**attach["connect"], "port": attach["connect"]["port"] + rank}
    return {**shared, "name": f"tk: rank {rank}", "connect": connect, RANK_KEY: rank}


def _compound(ranks: int) -> Values:
    return {
        "name": f"tk: ranks 0-{ranks - 1}",
        "configurations": [f"tk: rank {rank}" for rank in range(ranks)],
        "preLaunchTask": READY_LABEL,
        "stopAll": True,
    }


def attach_port(folder: Path, subdir: str = "") -> int | None:
    """The port of `tk: attach` in the launch.json there; None if there is no such thing.

    subdir: the project's place in `folder`; an entry for another project does not count.
    """
    for one in listed(folder / ".vscode" / "launch.json", "configurations"):
        connect = one.get("connect")
        if one.get("name") == ATTACH_NAME and isinstance(connect, dict):
            port = connect.get("port")
            return port if isinstance(port, int) and _maps(one, subdir) else None
    return None


def ready_place(folder: Path) -> str | None:
    """The directory of the task before F5 there; None if there is no such task."""
    for one in listed(folder / ".vscode" / "tasks.json", "tasks"):
        if one.get("label") == READY_LABEL:
            options = one.get("options")
            cwd = options.get("cwd") if isinstance(options, dict) else None
            return cwd if isinstance(cwd, str) else _local_root("")
    return None


def is_of_another(place: str | None, subdir: str) -> bool:
    """True if a task's directory is another project's below the workspace folder, or the folder's
    own; not for one that the user has chosen."""
    whole = _local_root("")
    ours = place is not None and (place == whole or place.startswith(whole + "/"))
    return ours and place != _local_root(subdir)


def _maps(configuration: Values, subdir: str) -> bool:
    """True for the project's own folder, and above it if the entry maps that project."""
    mappings = configuration.get("pathMappings")
    roots = [one.get("localRoot") for one in mappings or () if isinstance(one, dict)]
    return not subdir or _local_root(subdir) in roots


# -- what is there ------------------------------------------------------


def _ranks_in(launch: Path) -> int:
    """The number of ranks with a launch configuration in this file."""
    return 1 + max(map(_rank_of, listed(launch, "configurations")), default=-1)


def _rank_of(found: Values) -> int:
    """The rank of a launch configuration that tk wrote for one, else -1."""
    name = found.get("name")
    match = _RANK.fullmatch(name) if isinstance(name, str) else None
    rank = int(match[1]) if match else -1
    known = found.get(RANK_KEY) == rank and rank < MAX_RANKS
    return rank if known else -1


def _is_compound(found: Values) -> bool:
    name = found.get("name")
    return isinstance(name, str) and _RANKS.fullmatch(name) is not None


def _is_ours_alone(found: Values) -> bool:
    return _is_compound(found) and not _others(found)


def _others(compound: Values) -> list[object]:
    """Entries that a user put into the compound beside ranks."""
    names = compound.get("configurations")
    listed = names if isinstance(names, list) else []
    return [one for one in listed if not (isinstance(one, str) and _RANK.fullmatch(one))]


def _owned_task(entry: Values, found: Values) -> list[Assignment]:
    owned: list[Assignment] = [(("command",), entry["command"]), (("args",), entry["args"])]
    options = found.get("options")
    before = options.get("cwd") if isinstance(options, dict) else None
    # The barrier is of the project whose port `tk: attach` has: of the one that was written last.
    of_another = isinstance(before, str) and before.startswith(_local_root("") + "/")
    if "options" in entry or of_another:
        cwd = entry["options"]["cwd"] if "options" in entry else _local_root("")
        whole = not isinstance(options, dict)
        owned.append((("options",), {"cwd": cwd}) if whole else (("options", "cwd"), cwd))
    return owned


def _owned_configuration(entry: Values, found: Values) -> list[Assignment]:
    connect = entry["connect"]
    whole = not isinstance(found.get("connect"), dict)
    always = [(key,) for key in ("preLaunchTask", RANK_KEY) if key in entry]
    return [
        (("connect",), connect) if whole else (("connect", "port"), connect["port"]),
        *_owned_mappings(entry["pathMappings"], found.get("pathMappings")),
        *((place, entry[place[0]]) for place in always),
    ]


def _owned_mappings(mappings: list[dict[str, str]], found: object) -> list[Assignment]:
    """The remote roots of the mappings of tk's directories; a user's own mappings stay."""
    if not isinstance(found, list):
        return [(("pathMappings",), mappings)]
    places = {
        one["localRoot"].rstrip("/"): index
        for index, one in reversed(list(enumerate(found)))
        if isinstance(one, dict) and isinstance(one.get("localRoot"), str)
    }
    owned: list[Assignment] = []
    added = len(found)
    for mapping in mappings:
        index = places.get(mapping["localRoot"])
        if index is not None:
            owned.append((("pathMappings", index, "remoteRoot"), mapping["remoteRoot"]))
        else:
            owned.append((("pathMappings", added), mapping))
            added += 1
    return owned


def _owned_compound(entry: Values, found: Values) -> list[Assignment]:
    return [
        (("name",), entry["name"]),
        (("configurations",), [*entry["configurations"], *_others(found)]),
        (("preLaunchTask",), entry["preLaunchTask"]),
    ]
