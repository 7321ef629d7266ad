"""All code of a function or class, with what is nested in it."""

from __future__ import annotations

from types import CodeType, FunctionType


def code_of(owner: object) -> list[CodeType]:
    """The code objects, the outermost first."""
    if isinstance(owner, FunctionType):
        return _nested(owner.__code__)
    return [
        code
        for one in vars(owner).values()
        if isinstance(one, FunctionType)
        for code in _nested(one.__code__)
    ]


def _nested(code: CodeType) -> list[CodeType]:
    below = [inner for one in code.co_consts if isinstance(one, CodeType) for inner in _nested(one)]
    return [code, *below]
