"""Both ends mean the same: the agent's handlers take the parameters that the session sends."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tunnelkit
from tests.unit.house_plan import PAYLOAD
from tunnelkit.errors import TunnelkitError
from tunnelkit.messages import agent_calls as calls

PACKAGE = Path(tunnelkit.__file__).parent


def _parse(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text())


def _sent() -> dict[str, str]:
    """The type of each call's parameters, by the name of the call."""
    found = {}
    for node in _parse("messages/agent_calls.py").body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = node.value
            if isinstance(made.func, ast.Subscript) and ast.unparse(made.func.value) == "AgentCall":
                assert isinstance(made.func.slice, ast.Tuple)
                found[ast.literal_eval(made.args[0])] = ast.unparse(made.func.slice.elts[0])
    return found


def _taken() -> dict[str, str]:
    """The same, as the agent has it, of the handlers that are its own methods."""
    tree = _parse("agent/agent.py")
    defs = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]
    types = {node.name: node.args.args[1].annotation for node in defs if len(node.args.args) > 1}
    table = next(
        node for node in ast.walk(tree) if isinstance(node, ast.Dict) and len(node.keys) > 10
    )
    found = {}
    for key, value in zip(table.keys, table.values, strict=True):
        kind = types.get(value.attr) if isinstance(value, ast.Attribute) else None
        if kind is not None and ast.unparse(value).startswith("self._"):
            found[ast.literal_eval(key)] = str(ast.literal_eval(kind)).removeprefix("calls.")
    return found


def test_the_agent_takes_what_the_session_sends() -> None:
    sent, taken = _sent(), _taken()
    assert len(taken) > 12
    assert {name: sent[name] for name in taken} == taken


@pytest.mark.parametrize("room", PAYLOAD)
def test_the_payload_imports_messages_for_type_checking_only(room: str) -> None:
    for path in sorted((PACKAGE / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        tree.body = [node for node in tree.body if not _is_for_types(node)]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert "tunnelkit.messages" not in str(node.module), path


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


class _Far:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def call(self, method: str, **params: object) -> object:
        return self.answer


async def test_an_answer_of_another_type_is_an_error() -> None:
    assert await calls.LOOP_CLAIM.ask(_Far(3), {"loop": 1}) == 3
    with pytest.raises(TunnelkitError, match="can't be read"):
        await calls.LOOP_CLAIM.ask(_Far("3"), {"loop": 1})
