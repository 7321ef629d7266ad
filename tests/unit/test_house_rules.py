"""The numbers that keep the house small: sizes of modules and functions, types, docstrings."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "tunnelkit"
MODULE_LINES, FUNCTION_LINES, TYPE_IGNORES, ANYS = 400, 60, 0, 20

#: The sample is a user's program; base.py is documented by its class.
UNDOCUMENTED = ("demo/sample/", "link/base.py")

Def = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _modules() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(_tree(text)))


def _public(body: list[ast.stmt], before: str = "") -> Iterator[tuple[str, Def]]:
    for node in body:
        if isinstance(node, Def) and not node.name.startswith("_"):
            yield before + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body, f"{before}{node.name}.")


def test_no_module_is_too_long():
    long = {name for name, text in _modules() if len(text.splitlines()) > MODULE_LINES}
    assert not long, f"over {MODULE_LINES} lines"


def test_no_function_is_too_long():
    long = {
        f"{name}:{node.name}"
        for name, text in _modules()
        for node in _nodes(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    }
    assert not long, f"over {FUNCTION_LINES} lines"


def test_every_public_name_has_a_docstring():
    bare = [
        f"{name}:{qualified}"
        for name, text in _modules()
        if not name.startswith(UNDOCUMENTED)
        for qualified, node in _public(_tree(text).body)
        if ast.get_docstring(node) is None
    ]
    assert not bare


def test_types_are_checked():
    ignores = sum(len(re.findall(r"#\s*type: ignore", text)) for _, text in _modules())
    assert ignores <= TYPE_IGNORES


def test_any_is_rare():
    found = Counter(
        {
            name: sum(isinstance(node, ast.Name) and node.id == "Any" for node in _nodes(text))
            for name, text in _modules()
        }
    )
    assert found.total() <= ANYS, found.most_common(10)
