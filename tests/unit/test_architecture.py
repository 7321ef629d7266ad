"""The house's plan, held: imports point down, and what runs on nodes brings nothing along."""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tunnelkit

PACKAGE = Path(tunnelkit.__file__).parent
FILES = sorted(
    file for file in PACKAGE.rglob("*.py") if "sample" not in file.relative_to(PACKAGE).parts
)

#: Nouns, errors, quoting: every room but those of the payload may use them.
GROUND = {"errors", "model", "remote_command", "words"}
SIDE_BY_SIDE = {"link", "scheduler", "mirror", "debug"}

#: room (or top-level module) -> what of tunnelkit it may import
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "model": {"errors"},
    "remote_command": {"errors"},
    "words": set(),
    # The payload: runs on the cluster's nodes, Python 3.8, standard library only.
    "wire": set(),
    "mux": {"wire"},
    # Runs in the person's own interpreter, beside the program.
    "debuggee": set(),
    "agent": {"mux", "wire", "debuggee"},
    # Packs agent, debuggee, mux and wire into one file; knows them as files, not as code.
    "payload": GROUND,
    "config": GROUND,
    # The four that never import one another. `config.schema` is checked apart.
    **{room: {*GROUND, "wire", "mux", "config"} for room in SIDE_BY_SIDE},
    # It reads a command line as the hook will, to know a launcher when it sees one.
    "debug": {*GROUND, "wire", "mux", "config", "debuggee"},
    "session": {*GROUND, *SIDE_BY_SIDE, "wire", "mux", "config", "payload"},
    "lab": {*GROUND, "config"},
    # The guided tour; its sample project is data, not code of ours.
    "demo": {*GROUND, "config", "session", "debug", "lab"},
    "cli": {*GROUND, *SIDE_BY_SIDE, "wire", "mux", "config", "payload", "session", "lab", "demo"},
}
#: Only these files of cli may use the lab: a real cluster needs none of it.
LAB_USERS = ("cli/lab.py", "cli/demo.py", "demo/")
PAYLOAD = ("wire", "mux", "debuggee", "agent")


def room_of(file: Path) -> str:
    relative = file.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(file: Path) -> Iterator[str]:
    """Every module that the file imports, wherever in it, in full dotted form."""
    package = ("tunnelkit", *file.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join((*package[: len(package) - node.level + 1], *filter(None, [base])))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def rooms_used(file: Path) -> set[str]:
    used = {name.split(".")[1] for name in imports_of(file) if name.startswith("tunnelkit.")}
    return {room for room in used if (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").exists()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_down(file: Path) -> None:
    room = room_of(file)
    if room in ("__init__", "__main__"):
        assert rooms_used(file) <= ({"cli"} if room == "__main__" else set())
        return
    assert room in MAY_IMPORT, f"{room} has no place in the plan: give it one here"
    wrong = rooms_used(file) - MAY_IMPORT[room] - {room}
    assert not wrong, f"{room} may not import {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("room", sorted(SIDE_BY_SIDE))
def test_of_config_only_the_schema_goes_down(room: str) -> None:
    for file in (PACKAGE / room).rglob("*.py"):
        used = {name for name in imports_of(file) if name.startswith("tunnelkit.config")}
        assert all(name.startswith("tunnelkit.config.schema") for name in used), file


def test_only_the_labs_own_commands_use_the_lab() -> None:
    for file in FILES:
        if "lab" in rooms_used(file) and room_of(file) != "lab":
            assert str(file.relative_to(PACKAGE)).startswith(LAB_USERS), file


@pytest.mark.parametrize(
    "file",
    [file for file in FILES if room_of(file) in PAYLOAD],
    ids=lambda file: str(file.relative_to(PACKAGE)),
)
def test_the_payload_needs_the_standard_library_only(file: Path) -> None:
    tops = {name.split(".")[0] for name in imports_of(file)}
    # What runs beside the program finds debugpy there, or does without.
    beside = {"debugpy"} if room_of(file) == "debuggee" else set()
    assert tops <= {*sys.stdlib_module_names, "tunnelkit", *beside}


def test_wire_is_sans_io() -> None:
    tops = {
        name.split(".")[0] for file in FILES if room_of(file) == "wire" for name in imports_of(file)
    }
    assert not tops & {"asyncio", "socket", "select", "selectors", "threading", "time", "os"}


def test_files_are_of_a_size_to_read() -> None:
    lengths = {
        str(file.relative_to(PACKAGE)): len(file.read_text().splitlines())
        for file in FILES
        if file.name != "__init__.py"
    }
    assert statistics.median(lengths.values()) < 250
    assert {name: length for name, length in lengths.items() if length > 450} == {}
