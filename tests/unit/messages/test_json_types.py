from __future__ import annotations

import json
from typing import Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.messages import agent_calls as calls
from tunnelkit.messages.json_types import has_type

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class Part(TypedDict):
    name: str
    size: NotRequired[int]


class Whole(Part):
    parts: list[Part]
    kind: Literal["a", "b"] | None
    sizes: dict[str, float]


GOOD = {"name": "x", "parts": [{"name": "y", "size": 1}], "kind": "a", "sizes": {"z": 1}}


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"more": object()}, True),
        ({"kind": None}, True),
        ({"kind": "c"}, False),
        ({"name": None}, False),
        ({"size": True}, False),
        ({"parts": {}}, False),
        ({"parts": [{"size": 1}]}, False),
        ({"parts": [{"name": "y", "size": "1"}]}, False),
        ({"sizes": {"z": "1"}}, False),
    ],
)
def test_objects_fit_their_types(change: dict[str, object], fits: bool) -> None:
    assert has_type({**GOOD, **change}, Whole) is fits


@pytest.mark.parametrize("name", ["name", "parts", "kind", "sizes"])
def test_a_field_that_is_needed_must_be_there(name: str) -> None:
    assert not has_type({key: GOOD[key] for key in GOOD if key != name}, Whole)


@given(JSON)
def test_any_value_of_a_far_side_is_judged(value: object) -> None:
    for call in (calls.INFO, calls.LOOP_LIST, calls.EXEC_PROBE, calls.ATTACH_FIND):
        call.fits(value)
    assert has_type(value, object)
    assert has_type(value, int | None) is (
        value is None or (isinstance(value, int) and not isinstance(value, bool))
    )


def test_a_value_that_fits_survives_the_wire() -> None:
    assert has_type(json.loads(json.dumps(GOOD)), Whole)
