"""Named dimensions over the ranks."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.ranks.mesh import Mesh, parse_mesh
from tunnelkit.debug.ranks.text_errors import MeshError


def test_dimensions_are_row_major() -> None:
    mesh = parse_mesh(" pp = 2, dp=4,tp=8 ", 64)
    assert mesh == Mesh(("pp", "dp", "tp"), (2, 4, 8))
    assert [mesh.coordinate(name, 47) for name in mesh.names] == [1, 1, 7]
    assert mesh.coordinate("pp", 64) is None


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_each_rank_has_its_own_place(sizes: list[int]) -> None:
    names = "abcd"[: len(sizes)]
    text = ",".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))
    mesh = parse_mesh(text, math.prod(sizes))
    places = [
        tuple(mesh.coordinate(name, rank) for name in names) for rank in range(math.prod(sizes))
    ]
    assert places == list(itertools.product(*map(range, sizes)))


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("", 1, "name of a dimension is missing before the end"),
        ("pp", 3, "after pp comes = and its size"),
        ("pp=", 4, "size of pp is missing"),
        ("pp=x", 4, "size of pp is missing"),
        ("pp=0", 4, "at least 1"),
        ("pp=16,pp=1", 7, "pp is given twice"),
        ("pp=16,", 7, "name of a dimension is missing"),
        ("1=16", 1, "name of a dimension is missing before '1'"),
        ("pp=16 dp=1", 7, "a comma or the end must follow"),
        ("hosts=16", 1, "hosts has a meaning"),
        ("dp=2,failed=8", 6, "failed has a meaning"),
        ("pp=12345678", 4, "at most 7 digits"),
        ("pp=2,dp=4", 1, "the program has 16 ranks, but these sizes make 8"),
        (",".join(f"d{n}=9999999" for n in range(300)), 1, "make too many"),
        ("pp=\x1b", 4, "size of pp is missing"),
        ("\x1b=4", 1, "before '\\x1b'"),
    ],
)
def test_refusals(text: str, column: int, part: str) -> None:
    with pytest.raises(MeshError) as caught:
        parse_mesh(text, 16)
    assert caught.value.column == column
    assert part in caught.value.message


@given(st.text(max_size=30) | st.text("pd=,16 0\t", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        mesh = parse_mesh(text, 16)
    except MeshError as error:
        assert 1 <= error.column <= len(text) + 1
    else:
        assert math.prod(mesh.sizes) == 16


@pytest.mark.parametrize(
    ("names", "sizes"), [(("a", "a"), (1, 1)), (("a",), (1, 2)), (("a",), (0,))]
)
def test_a_mesh_is_sound(names: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="dimension"):
        Mesh(names, sizes)
