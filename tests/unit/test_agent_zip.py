"""The agent's zip: the same bytes every time, small, and runnable by old interpreters."""

from __future__ import annotations

import ast
import io
import shutil
import subprocess
import sys
import tokenize
import zipfile
from pathlib import Path

import pytest

from tunnelkit import agent_zip
from tunnelkit.agent import compile_zip


def interpreters() -> list[str]:
    """This interpreter and every Python from 3.8 on that the machine has."""
    found = {sys.executable: None}
    for minor in range(8, 15):
        for name in (
            f"python3.{minor}",
            *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"),
        ):
            path = shutil.which(str(name))
            if path and _works(path):
                found[path] = None
    return list(found)


def _works(path: str) -> bool:
    done = subprocess.run([path, "-I", "-S", "-c", "pass"], capture_output=True, check=False)
    return done.returncode == 0


def test_is_built_the_same_byte_for_byte() -> None:
    first = agent_zip.build()
    agent_zip.build.cache_clear()
    again = agent_zip.build()
    assert first == again


def test_stays_within_its_budget() -> None:
    assert len(agent_zip.build().data) <= agent_zip.BUDGET_BYTES


def shipped_sources() -> list[Path]:
    package = Path(agent_zip.__file__).parent
    return [path for room in agent_zip.ROOMS for path in sorted((package / room).rglob("*.py"))]


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _is_for_types(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and not node.orelse
    )


def _statements(source: str) -> tuple[str, list[tuple[str, int]]]:
    """The code of `source` without what `strip` takes and `pass`, and the line of each node."""
    tree = ast.parse(source)
    tree.body = [each for each in tree.body if not _is_for_types(each)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, _DOCUMENTED):
            if ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
            node.body = [each for each in node.body if not isinstance(each, ast.Pass)]
    lines = [(type(n).__name__, n.lineno) for n in ast.walk(tree) if hasattr(n, "lineno")]
    return ast.dump(tree), lines


@pytest.mark.parametrize(
    "path", shipped_sources(), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_strip_takes_what_readers_need_and_nothing_else(path: Path) -> None:
    source = path.read_text()
    stripped = agent_zip.strip(source)
    assert _statements(stripped) == _statements(source)
    assert stripped.count("\n") == source.count("\n")
    tokens = tokenize.generate_tokens(io.StringIO(stripped).readline)
    assert not [token for token in tokens if token.type == tokenize.COMMENT]
    nodes = [node for node in ast.walk(ast.parse(stripped)) if isinstance(node, _DOCUMENTED)]
    assert not [node for node in nodes if ast.get_docstring(node)]
    assert not any(map(_is_for_types, ast.parse(stripped).body))


def test_holds_only_the_rooms_of_the_node() -> None:
    with zipfile.ZipFile(io.BytesIO(agent_zip.build().data)) as archive:
        names = archive.namelist()
    rooms = {name.split("/")[1] for name in names if name.count("/") == 2}
    assert rooms == set(agent_zip.ROOMS)
    assert "__main__.py" in names


@pytest.mark.parametrize("python", interpreters())
def test_starts_and_answers_on_each_interpreter(python: str, tmp_path: Path) -> None:
    agent = tmp_path / agent_zip.build().file_name
    agent.write_bytes(agent_zip.build().data)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import tunnelkit.agent.agent, tunnelkit.agent.links.bridge, tunnelkit.agent.main\n"
    )
    done = subprocess.run(
        [python, "-I", "-S", "-c", script, str(agent)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    usage = subprocess.run(
        [python, "-I", "-S", str(agent)], capture_output=True, text=True, check=False
    )
    assert usage.returncode == 2
    assert "usage" in usage.stderr


_LOADED = """
import sys
sys.argv = [sys.argv[1], "compile"]
import runpy
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as ended:
    assert ended.code == 0
import tunnelkit.agent.main as main
print(main.__file__, main.__cached__ or "")
"""


@pytest.mark.parametrize("python", interpreters())
def test_byte_code_is_taken_where_it_is_there_and_fits(python: str, tmp_path: Path) -> None:
    agent = tmp_path / agent_zip.build().file_name
    agent.write_bytes(agent_zip.build().data)

    def loaded() -> str:
        argv = [python, "-I", "-S", "-c", _LOADED, str(agent)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert f"{agent}/tunnelkit" in loaded()
    (compiled,) = tmp_path.glob("agent-*-*.zip")
    assert loaded().split()[0] == f"{compiled}/tunnelkit/agent/main.pyc"
    assert sorted(tmp_path.iterdir()) == sorted([agent, compiled]), "no temporary is left"
    # Of another interpreter, by its first bytes: read as source.
    with zipfile.ZipFile(compiled) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(compiled, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, b"\0\0" + data[2:] if name.endswith(".pyc") else data)
        archive.comment = bytes(compile_zip.CHECKSUM_BYTES)
    compile_zip.seal(str(compiled))
    assert loaded().split()[0] == f"{compiled}/tunnelkit/agent/main.py"
    # Damaged in one byte: the sources are taken, and it is written once more.
    data = compiled.read_bytes()
    compiled.write_bytes(data[:1000] + bytes([data[1000] ^ 1]) + data[1001:])
    assert loaded().split()[0] == f"{agent}/tunnelkit/agent/main.py"
    assert loaded().split()[0] == f"{compiled}/tunnelkit/agent/main.pyc"
