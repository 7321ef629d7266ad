"""Expressions of node features, as sbatch's --constraint takes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.diagnosis.waiting.features import kinds


def _holds(expression: str, features: str) -> bool:
    found = kinds(expression)
    assert found is not None
    return any(one.holds(frozenset(features.split())) for one in found)


@pytest.mark.parametrize(
    ("expression", "features", "holds"),
    [
        ("", "", True),
        ("a100", "a100 ib", True),
        ("a100", "v100", False),
        ("a100&ib", "a100 ib", True),
        ("a100&ib", "a100", False),
        ("a100|v100", "v100", True),
        ("a&b|c", "c", True),
        ("a&(b|c)", "c", False),
        ("a&(b|c)", "a c", True),
        ("!a", "b", True),
        ("!a&b", "a b", False),
        ("(a|b)&!c", "b", True),
        ("[a|b]&c", "b c", True),
        ("[a|b]&c", "b", False),
        ("gpu-type=a100", "gpu-type=a100", True),
        ("a,b", "a", False),
    ],
)
def test_a_node_has_it(expression: str, features: str, holds: bool) -> None:
    assert _holds(expression, features) is holds


def test_nodes_of_a_choice_are_of_one_kind() -> None:
    found = kinds("[rack1|rack2]")
    assert found is not None and len(found) == 2
    one, two = found
    assert one.holds(frozenset({"rack1"})) and not one.holds(frozenset({"rack2"}))
    assert two.holds(frozenset({"rack2"}))


def test_counted_features_are_asked_of_some_nodes_only() -> None:
    [found] = kinds("[rack1*2&rack2*4]") or ()
    assert found.holds(frozenset())
    assert [count for _, count in found.counts] == [2, 4]
    [found] = kinds("ib&a100*3") or ()
    assert found.holds(frozenset({"ib"})) and not found.holds(frozenset({"a100"}))


@pytest.mark.parametrize("text", ["(", "a)", "a&&b", "a|", "*2", "a*x", "[a", "a b", "a" * 3000])
def test_what_cannot_be_read_is_not_guessed(text: str) -> None:
    assert kinds(text) is None


@given(st.text(st.sampled_from("ab&|!()[]{}*,2 "), max_size=60) | st.text(max_size=30))
def test_no_expression_is_too_strange(text: str) -> None:
    for one in kinds(text) or ():
        one.holds(frozenset({"a"}))


def test_a_deep_expression_ends() -> None:
    assert kinds("(" * 500 + "a" + ")" * 500) is None
