"""Errors are for people: each says what to do next, in words of one style."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import tunnelkit
from tunnelkit import errors

PACKAGE = Path(tunnelkit.__file__).parent
#: Errors that never are the last word: who catches them says what to do.
CAUGHT = {
    "AgentGone": "told as the end of the allocation, with the scheduler's reason",
    "AdapterGone": "another adapter is started",
    "LineError": "the console's own, shown below the line",
    "Failed": "the demo's own, with the log below it",
    "NotThere": "the mirror takes another way",
    "SelectionError": "its hint is the text, with a caret below the column",
}
#: Places whose errors are not told to the person who gave the command.
ELSEWHERE = {
    "demo/dap_client.py": "the debugger of the demo and of tests",
    "demo/": "the guided tour, which shows logs",
    "lab/proxy.py:unknown command": "a protocol of the lab's own",
    "link/shared/hop_forward.py": "another way of the forward is taken",
    "scheduler/job_script.py:a holder needs": "a mistake of the program",
}


class Told(NamedTuple):
    """One place where an error is made."""

    file: str
    line: int
    kind: str
    message: str
    hint: str | None
    source: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}: {self.source}"


def _kinds() -> set[str]:
    found = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.TunnelkitError)
    }
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                found |= {node.name} if bases & found else set()
    return found


def _text(node: ast.expr | None) -> str:
    """The text of a literal, with {} for what is put in; "" of anything else."""
    if isinstance(node, ast.Constant):
        return str(node.value or "")
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    return ""


def _is_absent(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and not node.value)


def told() -> Iterator[Told]:
    kinds = _kinds()
    for file in sorted(PACKAGE.rglob("*.py")):
        source = file.read_text()
        for node in ast.walk(ast.parse(source)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id not in kinds:
                continue
            words = {word.arg: word.value for word in node.keywords}
            first = node.args[0] if node.args else words.get("message")
            yield Told(
                str(file.relative_to(PACKAGE)),
                node.lineno,
                node.func.id,
                _text(first),
                None if _is_absent(words.get("hint")) else _text(words["hint"]),
                ast.get_source_segment(source, node) or "",
            )


ALL = list(told())


def _is_elsewhere(one: Told) -> bool:
    for place in ELSEWHERE:
        file, _, part = place.partition(":")
        if one.file.startswith(file) and part in one.source:
            return True
    return False


def test_there_are_errors_to_look_at() -> None:
    assert len(ALL) > 200
    for place in ELSEWHERE:
        file, _, part = place.partition(":")
        assert any(one.file.startswith(file) and part in one.source for one in ALL), place


@pytest.mark.parametrize("file", sorted({one.file for one in ALL}))
def test_every_error_says_what_to_do_next(file: str) -> None:
    silent = [
        one.place
        for one in ALL
        if one.file == file
        and one.hint is None
        and one.kind not in CAUGHT
        and not _is_elsewhere(one)
    ]
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize("file", sorted({one.file for one in ALL}))
def test_words_of_one_style(file: str) -> None:
    """Messages go on as `tk: ...`: no capital, no full stop, one line."""
    for one in ALL:
        if one.file != file:
            continue
        for text in (one.message, one.hint or ""):
            assert not text.endswith((".", "!", " ")) or text.endswith("..."), one.place
            assert "\n" not in text and "  " not in text, one.place
        first = one.message.split(" ")[0]
        # Names and options keep their capitals.
        named = first in ("Slurm", "Torque", "Python")
        assert named or not (first[:1].isupper() and first[1:].islower()), one.place
