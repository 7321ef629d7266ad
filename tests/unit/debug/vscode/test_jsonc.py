"""The JSONC parser and its edits, on documents full of noise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.vscode import jsonc, jsonc_edit

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=15,
)
NOISE = st.lists(
    st.sampled_from(
        [
            "",
            " ",
            "\t",
            "\n",
            "\r\n",
            "// c [{,\n",
            '// "q"\r\n',
            "/* ] } , */",
            "/*\n*/",
            "//\n",
            "/***/",
        ]
    ),
    max_size=2,
).map("".join)


@st.composite
def documents(draw: st.DrawFn, values: st.SearchStrategy[Any] = VALUES) -> tuple[str, Any]:
    """A document's text, with comments and trailing commas anywhere, and its value."""

    def write(value: Any) -> str:
        if isinstance(value, dict):
            inner = [
                f"{draw(NOISE)}{json.dumps(key)}{draw(NOISE)}:{draw(NOISE)}{write(one)}{draw(NOISE)}"
                for key, one in value.items()
            ]
            return "{" + join(inner) + "}"
        if isinstance(value, list):
            return "[" + join([f"{draw(NOISE)}{write(one)}{draw(NOISE)}" for one in value]) + "]"
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    def join(inner: list[str]) -> str:
        trailing = "," + draw(NOISE) if inner and draw(st.booleans()) else ""
        return draw(NOISE) + ",".join(inner) + trailing

    value = draw(values)
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return f"{bom}{draw(NOISE)}{write(value)}{draw(NOISE)}", value


@given(documents())
def test_parses_what_was_written(document: tuple[str, Any]) -> None:
    text, value = document
    node = jsonc.parse(text)
    assert node is not None
    assert jsonc.same(node, value)
    inner = text[node.start : node.end]
    again = jsonc.parse(inner)
    assert again is not None and jsonc.to_python(again) == jsonc.to_python(node)


@given(documents(st.dictionaries(st.text(max_size=5), VALUES, max_size=4)), VALUES)
def test_appended_member_is_there_and_the_rest_is_kept(
    document: tuple[str, dict[str, Any]], new: Any
) -> None:
    text, value = document
    root = jsonc.parse(text)
    assert isinstance(root, jsonc.Object)
    after = jsonc_edit.append_member(text, root, "new key", new, jsonc_edit.style_of(text, root))
    node = jsonc.parse(after)
    assert node is not None and jsonc.same(node, {**value, "new key": new})
    assert_only_inserted(text, after)


@given(documents(st.lists(VALUES, max_size=4)), VALUES)
def test_appended_item_is_there_and_the_rest_is_kept(
    document: tuple[str, list[Any]], new: Any
) -> None:
    text, value = document
    root = jsonc.parse(text)
    assert isinstance(root, jsonc.Array)
    after = jsonc_edit.append_item(text, root, new, jsonc_edit.style_of(text, root))
    node = jsonc.parse(after)
    assert node is not None and jsonc.same(node, [*value, new])
    assert_only_inserted(text, after)


@given(documents(st.lists(VALUES, min_size=1, max_size=4)), st.data())
def test_removed_item_is_gone_and_the_rest_is_kept(
    document: tuple[str, list[Any]], data: st.DataObject
) -> None:
    text, value = document
    index = data.draw(st.integers(0, len(value) - 1))
    root = jsonc.parse(text)
    assert isinstance(root, jsonc.Array)
    after = jsonc_edit.remove_item(text, root, index)
    node = jsonc.parse(after)
    assert node is not None and jsonc.same(node, value[:index] + value[index + 1 :])
    item = root.items[index]
    kept = text[: item.start] + text[item.end :]
    assert "".join(after.split()).replace(",", "") == "".join(kept.split()).replace(",", "")


@pytest.mark.parametrize(
    ("before", "index", "after"),
    [
        ("[1, 2, 3]", 0, "[2, 3]"),
        ("[1, 2, 3]", 1, "[1, 3]"),
        ("[1, 2, 3]", 2, "[1, 2]"),
        ("[1, 2,]", 1, "[1,]"),
        ("[ 1 ]", 0, "[]"),
        ("[\n  1,\n  2,\n  3\n]", 1, "[\n  1,\n  3\n]"),
        ("[\r\n  1,\r\n  2\r\n]", 1, "[\r\n  1\r\n]"),
        ("[\n  1, // a\n  2 // b\n]", 1, "[\n  1 // a\n  // b\n]"),
        ("[\n  1, // a\n  2,\n]", 0, "[\n  // a\n  2,\n]"),
        ("[\n  1,\n  2,\n]", 1, "[\n  1,\n]"),
        ("[\n  1\n]", 0, "[]"),
        ("[{\n}, {\n}]", 1, "[{\n}]"),
        ("[{\n}, {\n}]", 0, "[{\n}]"),
    ],
)
def test_removed_as_a_person_would(before: str, index: int, after: str) -> None:
    root = jsonc.parse(before)
    assert isinstance(root, jsonc.Array)
    assert jsonc_edit.remove_item(before, root, index) == after


def assert_only_inserted(before: str, after: str) -> None:
    """Every character of `before` is still there, in order, but for blanks before a bracket."""
    rest = iter(after)
    lost = [char for char in before if char not in rest_until(rest, char)]
    assert not "".join(lost).strip(" \t")


def rest_until(rest: Any, char: str) -> str:
    """Consume `rest` up to `char`; '' if it isn't there (a blank may be missing)."""
    if char in " \t":
        return char  # blanks may be re-laid; all else is held strictly
    for one in rest:
        if one == char:
            return char
    return ""


@given(documents(), VALUES)
def test_replace_touches_only_the_node(document: tuple[str, Any], new: Any) -> None:
    text, _ = document
    node = jsonc.parse(text)
    assert node is not None
    after = jsonc_edit.replace(text, node, new, jsonc_edit.style_of(text, node))
    assert after.startswith(text[: node.start])
    assert after.endswith(text[node.end :])
    again = jsonc.parse(after)
    assert again is not None and jsonc.same(again, new)


@given(st.text(alphabet='{}[]",:/*\\ \r\n01-.eEtrufalsn\ufeff', max_size=40))
def test_any_text_parses_or_is_refused_with_a_place(text: str) -> None:
    try:
        jsonc.parse(text)
    except jsonc.JsoncError as error:
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(text) + 1


@given(st.text(max_size=30))
def test_accepts_all_json_that_python_accepts(text: str) -> None:
    document = json.dumps({"k": text})
    node = jsonc.parse(document)
    assert node is not None and jsonc.to_python(node) == {"k": text}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{"a": 1 "b": 2}', 1, 9),
        ('{\n  "a": 1,\n  b: 2\n}', 3, 3),
        ("[1, 2", 1, 6),
        ("[1,, 2]", 1, 4),
        ("[,]", 1, 2),
        ("{,}", 1, 2),
        ('{"a": }', 1, 7),
        ('{"a" 1}', 1, 6),
        ('{"a": "x\n"}', 1, 7),
        ('{\r\n"a": tru}', 2, 6),
        ("[01]", 1, 2),
        ("[1.]", 1, 2),
        ("[+1]", 1, 2),
        ("[NaN]", 1, 2),
        ("['a']", 1, 2),
        ('["\\x"]', 1, 2),
        ("1 2", 1, 3),
        ("[1] /* never", 1, 5),
        ("[\n/* never", 2, 1),
        ("/", 1, 1),
    ],
)
def test_malformed(text: str, line: int, column: int) -> None:
    with pytest.raises(jsonc.JsoncError) as caught:
        jsonc.parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_nested_too_deeply_is_an_error_not_a_crash() -> None:
    with pytest.raises(jsonc.JsoncError, match="too deeply"):
        jsonc.parse("[" * 100_000)


def test_a_huge_number_is_a_number() -> None:
    node = jsonc.parse("1" * 5000)
    assert node is not None and jsonc.to_python(node) == float("inf")


@pytest.mark.parametrize("text", ["", "  \n", "// only this", "/* a */ // b\n", "\ufeff"])
def test_nothing_but_comments(text: str) -> None:
    assert jsonc.parse(text) is None


def test_the_last_of_two_equal_keys_counts() -> None:
    root = jsonc.parse('{"a": 1, "a": 2}')
    assert isinstance(root, jsonc.Object)
    found = root.get("a")
    assert found is not None and jsonc.to_python(found) == 2


def test_one_is_neither_true_nor_a_fraction() -> None:
    one = jsonc.parse("1")
    assert one is not None
    assert jsonc.same(one, 1) and not jsonc.same(one, True) and not jsonc.same(one, 1.0)
