"""tasks.json and launch.json: made, merged, and left alone where they are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.vscode import jsonc
from tunnelkit.debug.vscode import vscode as editor
from tunnelkit.debug.vscode.vscode import ATTACH_NAME, READY_LABEL
from tunnelkit.errors import DebugError
from tunnelkit.model import PathMapping

TASK = {
    "label": "tk: ready",
    "type": "process",
    "command": "tk",
    "args": ["ready", "--sync"],
    "problemMatcher": [],
    "presentation": {"reveal": "silent", "showReuseMessage": False, "clear": True},
}
CONFIGURATION = {
    "name": "tk: attach",
    "type": "debugpy",
    "request": "attach",
    "connect": {"host": "127.0.0.1", "port": 40056},
    "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": "/home/me/code"}],
    "justMyCode": True,
    "preLaunchTask": "tk: ready",
}


def merge(project: Path, **changed: Any) -> list[editor.FileChange]:
    """Plan and write with everyday arguments."""
    arguments = {"port": 40056, "remote_root": "/home/me/code", "just_my_code": True} | changed
    changes = editor.plan(project, **arguments)
    editor.apply(changes, within=project)
    return changes


def write(project: Path, name: str, text: str) -> Path:
    path = project / ".vscode" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    return path


def read(project: Path, name: str) -> Any:
    node = jsonc.parse((project / ".vscode" / name).read_bytes().decode())
    assert node is not None
    return jsonc.to_python(node)


def statuses(changes: list[editor.FileChange]) -> list[str]:
    return [change.status for change in changes]


def test_created_where_there_was_nothing(tmp_path: Path) -> None:
    assert statuses(merge(tmp_path)) == ["created", "created"]
    assert read(tmp_path, "tasks.json") == {"version": "2.0.0", "tasks": [TASK]}
    assert read(tmp_path, "launch.json") == {"version": "0.2.0", "configurations": [CONFIGURATION]}
    text = (tmp_path / ".vscode/launch.json").read_text()
    assert json.loads(text) and text.endswith("}\n") and text.startswith('{\n    "version"')
    assert statuses(merge(tmp_path)) == ["already right", "already right"]


LAUNCH = """\
\ufeff// Use IntelliSense to learn about possible attributes.\r
{\r
  "version": "0.2.0",\r
  "configurations": [\r
    { // mine\r
      "name": "Python: Current File",\r
      "type": "debugpy",\r
      "program": "${file}", /* keep */\r
    }, // after\r
    // { "name": "old" },\r
  ],\r
  "compounds": []\r
}\r
"""


def test_merged_in_the_files_own_style(tmp_path: Path) -> None:
    path = write(tmp_path, "launch.json", LAUNCH)
    assert statuses(merge(tmp_path)) == ["created", "updated"]
    after = path.read_bytes().decode()
    assert read(tmp_path, "launch.json")["configurations"][1] == CONFIGURATION
    head, tail = LAUNCH.split("  ],\r\n", 1)
    assert after.startswith(head)
    assert after.endswith("    },\r\n  ],\r\n" + tail)
    assert '\r\n    {\r\n      "name": "tk: attach",\r\n' in after
    assert after.count("\n") == after.count("\r\n")
    assert statuses(merge(tmp_path)) == ["already right", "already right"]
    assert path.read_bytes().decode() == after


def test_no_trailing_comma_is_added_to_a_file_without(tmp_path: Path) -> None:
    before = '{\n\t"tasks": [\n\t\t{"label": "build"} // b\n\t]\n}'
    path = write(tmp_path, "tasks.json", before)
    merge(tmp_path)
    after = path.read_text()
    assert after.startswith('{\n\t"tasks": [\n\t\t{"label": "build"}, // b\n\t\t{\n\t\t\t"label"')
    assert after.endswith("\t\t}\n\t]\n}")


def test_only_the_values_that_tk_owns_are_updated(tmp_path: Path) -> None:
    mine = {
        **CONFIGURATION,
        "name": ATTACH_NAME,
        "type": "python",
        "connect": {"host": "localhost", "port": 1},
        "justMyCode": False,
        "subProcess": True,
        "preLaunchTask": "other",
        "pathMappings": [
            {"localRoot": "/opt/lib", "remoteRoot": "/usr/lib"},
            {"localRoot": "${workspaceFolder}/", "remoteRoot": "/old"},
        ],
    }
    del mine["request"]
    write(tmp_path, "launch.json", json.dumps({"configurations": [{"name": "x"}, mine]}, indent=1))
    task = {"label": READY_LABEL, "command": "old", "args": ["x"], "presentation": {"echo": True}}
    write(tmp_path, "tasks.json", json.dumps({"version": "2.0.0", "tasks": [task]}))
    assert statuses(merge(tmp_path)) == ["updated", "updated"]
    mine["connect"]["port"] = 40056
    mine["preLaunchTask"] = READY_LABEL
    mine["pathMappings"][1]["remoteRoot"] = "/home/me/code"
    assert read(tmp_path, "launch.json") == {"configurations": [{"name": "x"}, mine]}
    task |= {"command": "tk", "args": ["ready", "--sync"]}
    assert read(tmp_path, "tasks.json") == {"version": "2.0.0", "tasks": [task]}
    assert statuses(merge(tmp_path)) == ["already right", "already right"]


def test_a_new_port_and_remote_root_change_only_those(tmp_path: Path) -> None:
    merge(tmp_path)
    path = tmp_path / ".vscode/launch.json"
    before = path.read_text()
    assert statuses(merge(tmp_path, port=50001, remote_root="/scratch/é x")) == [
        "already right",
        "updated",
    ]
    expected = before.replace("40056", "50001").replace("/home/me/code", "/scratch/é x")
    assert path.read_text() == expected


@pytest.mark.parametrize(
    "broken",
    [
        {"connect": None, "pathMappings": None},
        {"connect": 5, "pathMappings": {}},
        {"connect": {}, "pathMappings": []},
        {"connect": [], "pathMappings": [1, {"localRoot": 2}, {}]},
        {},
    ],
)
def test_owned_values_of_the_wrong_kind_are_put_right(tmp_path: Path, broken: Any) -> None:
    entry = {"name": ATTACH_NAME, **broken}
    write(tmp_path, "launch.json", json.dumps({"configurations": [entry]}))
    merge(tmp_path)
    found = read(tmp_path, "launch.json")["configurations"][0]
    assert found["connect"]["port"] == 40056
    assert CONFIGURATION["pathMappings"][0] in found["pathMappings"]  # type: ignore[index]
    assert statuses(merge(tmp_path)) == ["already right", "already right"]


@pytest.mark.parametrize(
    "text", ["", "\n", "// my tasks", "/* a */\r\n", "\ufeff", "{}", "{ }", "{\n}"]
)
def test_empty_documents_are_filled(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "tasks.json", text)
    merge(tmp_path)
    assert read(tmp_path, "tasks.json") == {"version": "2.0.0", "tasks": [TASK]}
    assert path.read_bytes().decode().startswith(text.rstrip("{ }\n"))
    assert statuses(merge(tmp_path)) == ["already right", "already right"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"configurations": [}', ":1:21:"),
        ('{\n  "configurations": {}\n}', ":2:21:"),
        ("[]", ":1:1:"),
        ('{"configurations": [] ', ":1:23:"),
    ],
)
def test_malformed_is_told_and_nothing_is_written(tmp_path: Path, text: str, place: str) -> None:
    path = write(tmp_path, "launch.json", text)
    with pytest.raises(DebugError) as caught:
        merge(tmp_path)
    assert f"{path}{place}" in caught.value.one_line()
    assert path.read_text() == text
    assert [one.name for one in path.parent.iterdir()] == ["launch.json"]


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / ".vscode/tasks.json"
    path.parent.mkdir()
    path.write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(DebugError, match=r"tasks\.json:2: not UTF-8"):
        merge(tmp_path)


@pytest.mark.parametrize("remote_root", ["~/code", "~", "code", "", "/a\nb"])
def test_a_remote_root_that_vscode_cant_use_is_refused(tmp_path: Path, remote_root: str) -> None:
    with pytest.raises(DebugError, match="pathMappings"):
        merge(tmp_path, remote_root=remote_root)
    assert not (tmp_path / ".vscode").exists()


def test_project_below_the_workspace_folder(tmp_path: Path) -> None:
    merge(tmp_path, subdir="a/b")
    configuration = read(tmp_path, "launch.json")["configurations"][0]
    assert configuration["pathMappings"][0]["localRoot"] == "${workspaceFolder}/a/b"
    task = read(tmp_path, "tasks.json")["tasks"][0]
    assert task["options"] == {"cwd": "${workspaceFolder}/a/b"}


def test_further_roots_have_mappings_of_their_own(tmp_path: Path) -> None:
    own = {"localRoot": "${workspaceFolder}", "remoteRoot": "/home/me/code"}
    site = {"localRoot": "/opt/site", "remoteRoot": "/usr/site"}
    lib = {"localRoot": "${workspaceFolder}/../lib", "remoteRoot": "/home/me/lib"}
    data = {"localRoot": "/data", "remoteRoot": "/scratch/data"}
    merge(tmp_path)
    also = [PathMapping(*one.values()) for one in (lib, data)]
    merge(tmp_path, also=also)
    path = tmp_path / ".vscode/launch.json"

    def mappings() -> list[dict[str, str]]:
        found: list[dict[str, str]] = read(tmp_path, "launch.json")["configurations"][0][
            "pathMappings"
        ]
        return found

    assert mappings() == [own, lib, data]
    assert statuses(merge(tmp_path, also=also)) == ["already right", "already right"]
    # A person's own stays where it is, and one that moved on the cluster is followed.
    text = path.read_text()
    first = f'"pathMappings": [{json.dumps(site)}, '
    path.write_text(text.replace('"pathMappings": [', first))
    merge(tmp_path, also=[PathMapping(lib["localRoot"], "/new/lib"), also[1]])
    assert mappings() == [site, own, {**lib, "remoteRoot": "/new/lib"}, data]


WORDS = st.sampled_from(["a", "name", "label", "tk: attach", "tk: ready", "x"])
ENTRIES = st.lists(
    st.dictionaries(
        WORDS, WORDS | st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2), max_size=3
    ),
    max_size=3,
)


@given(
    entries=ENTRIES,
    extra=st.dictionaries(WORDS, st.integers(), max_size=2),
    indent=st.sampled_from([None, 2, 4, "\t"]),
    eol=st.sampled_from(["\n", "\r\n"]),
)
def test_any_file_keeps_its_entries_and_a_second_run_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, entries: Any, extra: Any, indent: Any, eol: str
) -> None:
    project = tmp_path_factory.mktemp("project")
    for name, key in (("tasks.json", "tasks"), ("launch.json", "configurations")):
        text = json.dumps({**extra, key: entries}, indent=indent)
        write(project, name, text.replace("\n", eol))
    merge(project)
    for name, key, ident, ours in (
        ("tasks.json", "tasks", "label", READY_LABEL),
        ("launch.json", "configurations", "name", ATTACH_NAME),
    ):
        found = read(project, name)
        assert {k: v for k, v in found.items() if k != key} == extra
        others = [one for one in entries if one.get(ident) != ours]
        assert [one for one in found[key] if one.get(ident) != ours] == others
        assert any(one.get(ident) == ours for one in found[key])
        raw = (project / ".vscode" / name).read_bytes()
        assert eol == "\n" or raw.count(b"\n") == raw.count(b"\r\n")
    assert statuses(merge(project)) == ["already right", "already right"]


def test_the_barrier_is_of_the_project_whose_port_is_attached_to(tmp_path: Path) -> None:
    """Two projects below one workspace folder, and then the folder itself."""
    for subdir, port in (("a", 40056), ("b", 40057), ("", 40058)):
        merge(tmp_path, subdir=subdir, port=port)
        (task,) = read(tmp_path, "tasks.json")["tasks"]
        cwd = task["options"]["cwd"]
        assert cwd == "${workspaceFolder}" + (f"/{subdir}" if subdir else "")
        (attach,) = read(tmp_path, "launch.json")["configurations"]
        assert attach["connect"]["port"] == port


def test_a_users_own_directory_of_the_task_stays(tmp_path: Path) -> None:
    merge(tmp_path)
    task = read(tmp_path, "tasks.json")["tasks"][0]
    task["options"] = {"cwd": "/elsewhere", "env": {"A": "1"}}
    write(tmp_path, "tasks.json", json.dumps({"version": "2.0.0", "tasks": [task]}))
    merge(tmp_path)
    assert read(tmp_path, "tasks.json")["tasks"][0]["options"] == task["options"]


@pytest.mark.parametrize(
    "changed",
    [
        {"remote_root": "/home/me${command:workbench.action.terminal.runActiveFile}"},
        {"subdir": "a${command:x}"},
        {"also": [PathMapping("/data", "/data${env:SECRET}")]},
        {"also": [PathMapping("${workspaceFolder}/../l${input:x}", "/l")]},
    ],
)
def test_no_variable_of_vscodes_comes_from_the_cluster_or_a_clone(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    with pytest.raises(DebugError, match="pathMappings"):
        merge(tmp_path, **changed)
    assert not (tmp_path / ".vscode").exists()
