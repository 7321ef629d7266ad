"""The house's plan, held: imports point down, and what runs on nodes brings nothing along."""

from __future__ import annotations

import ast
import graphlib
import statistics
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tunnelkit
from tests.unit import house_plan
from tests.unit.house_plan import FOLDERS, PAYLOAD, ROOMS, SIDE_BY_SIDE

PACKAGE = Path(tunnelkit.__file__).parent
FILES = sorted(
    file for file in PACKAGE.rglob("*.py") if "sample" not in file.relative_to(PACKAGE).parts
)

#: Only these files of cli may use the lab: a real cluster needs none of it.
LAB_USERS = ("cli/commands/support/lab.py", "cli/commands/support/demo.py", "demo/")


def room_of(file: Path) -> str:
    relative = file.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(file: Path) -> tuple[str, ...]:
    """Every module that the file imports, wherever in it, in full dotted form."""
    return _imports_of(file, file.stat().st_mtime_ns)


@cache
def _imports_of(file: Path, changed_ns: int) -> tuple[str, ...]:
    return tuple(_imports(file))


def _imports(file: Path) -> Iterator[str]:
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
    assert room in ROOMS, f"{room} has no place in the plan: give it one in house_plan.py"
    wrong = rooms_used(file) - ROOMS[room].may_import - {room}
    assert not wrong, f"{room} may not import {', '.join(sorted(wrong))}"


def test_a_room_may_import_only_what_it_uses() -> None:
    used: dict[str, set[str]] = {room: set() for room in ROOMS}
    for file in FILES:
        used.get(room_of(file), set()).update(rooms_used(file))
    allowed = {room: set(plan.may_import) for room, plan in ROOMS.items()}
    assert {room: names - {room} for room, names in used.items()} == allowed


def test_rooms_side_by_side_stay_apart() -> None:
    for room in SIDE_BY_SIDE:
        assert not ROOMS[room].may_import & SIDE_BY_SIDE, room


def part_of(module: str, room: str) -> str | None:
    """The folder or module of `room` that a dotted name lies in; None for another room's."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["tunnelkit", room] and len(parts) > 2 else None


@pytest.mark.parametrize("room", sorted(FOLDERS))
def test_folders_import_only_those_before_them(room: str) -> None:
    layers = {name: at for at, layer in enumerate(FOLDERS[room]) for name in layer.split()}
    present = {one.stem for one in (PACKAGE / room).iterdir() if holds_code(one)}
    assert set(layers) == present
    for file in (PACKAGE / room).rglob("*.py"):
        own = file.relative_to(PACKAGE / room).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for name in imports_of(file):
            other = part_of(name, room)
            if other in layers and other != own:
                assert layers[other] < layers[own], f"{file}: {own} may not import {other}"


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Lazily or for type checking neither: what needs each other belongs together."""
    modules = {
        ".".join(("tunnelkit", *file.relative_to(PACKAGE).with_suffix("").parts)): file
        for file in FILES
        if file.name != "__init__.py"
    }
    graph: dict[str, set[str]] = {}
    for module, file in modules.items():
        used = graph[module] = set()
        for name in imports_of(file):
            # `from a.b import c`: the module a.b.c, or a name in a.b.
            found = name if name in modules else name.rpartition(".")[0]
            if found in modules and found != module:
                used.add(found)
    graphlib.TopologicalSorter(graph).prepare()


def holds_code(path: Path) -> bool:
    if path.is_dir():
        return (path / "__init__.py").exists()
    return path.suffix == ".py" and path.stem != "__init__"


def test_folders_are_small_enough_to_take_in() -> None:
    sizes: dict[str, int] = {}
    for file in FILES:
        if file.name != "__init__.py":
            folder = str(file.parent.relative_to(PACKAGE))
            sizes[folder] = sizes.get(folder, 0) + 1
    assert {folder: size for folder, size in sizes.items() if size > 18} == {}


def test_the_table_in_architecture_is_this_plan() -> None:
    text = house_plan.ARCHITECTURE.read_text()
    again = "run python -m tests.unit.house_plan"
    assert house_plan.with_table(text) == text, again


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
