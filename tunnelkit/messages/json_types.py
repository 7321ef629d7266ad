"""JSON values against types: TypedDicts, lists, dicts, unions, literals and plain types."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import (
    Literal,
    NotRequired,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

T = TypeVar("T")


def has_type(value: object, kind: object) -> bool:
    """True if a JSON value has this type. Further keys of an object, another version's, may be."""
    if is_typeddict(kind):
        return isinstance(value, dict) and all(
            has_type(value[key], of) if key in value else not needed
            for key, of, needed in _fields(kind)
        )
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(has_type(value, one) for one in of)
    if origin is Literal:
        return value in of
    if origin is list:
        return isinstance(value, list) and all(has_type(one, of[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(has_type(one, of[1]) for one in value.values())
    if kind in (None, NoneType):
        return value is None
    if isinstance(value, bool):
        return kind in (bool, object)
    return isinstance(value, int | float if kind is float else _plain(kind))


def guard(kind: type[T]) -> Callable[[object], TypeGuard[T]]:
    """A check that a value is of `kind`."""

    def is_one(value: object) -> TypeGuard[T]:
        return has_type(value, kind)

    return is_one


def _plain(kind: object) -> type:
    assert isinstance(kind, type), kind
    return kind


@cache
def _fields(kind: object) -> list[tuple[str, object, bool]]:
    """Name, type and whether it is needed, of each field of a TypedDict."""
    # Not __required_keys__: it does not know NotRequired where annotations are postponed.
    total = bool(getattr(kind, "__total__"))  # noqa: B009
    fields = get_type_hints(kind, include_extras=True)
    return [
        (name, *((get_args(of)[0], False) if get_origin(of) is NotRequired else (of, total)))
        for name, of in fields.items()
    ]
