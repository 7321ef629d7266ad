"""Answers of ranks about values, read whatever they are."""

from __future__ import annotations

import json

import pytest

from tunnelkit.debug.console.values import read_value


def _read(result: str) -> tuple[str, str]:
    reading = read_value(True, "", {"result": result}, 2000)
    return reading.kind, reading.text


@pytest.mark.parametrize("text", ["1", "it's", 'a "b"', "back\\slash", "line\nbreak", "é", "'", ""])
def test_a_string_that_is_written_as_python_writes_it_is_read_too(text: str) -> None:
    plain = json.dumps({"kind": "value", "text": text})
    assert _read(plain) == _read(repr(plain)) == ("value", text)


@pytest.mark.parametrize("result", ["", "'", "''", "'{'", "5", "[1]", "None", "'a' 'b'", " {1: 2}"])
def test_what_is_no_answer_is_an_error(result: str) -> None:
    kind, text = _read(result)
    assert kind == "error" and text.startswith("***")
