"""typer for the commands' modules, imported only when it builds an app.

typer brings pydantic, and an app costs more time than most commands' work. The modules of
commands name it in annotations alone, which fast_path.py reads by `Parameter` instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

_reads = ContextVar("reads", default=False)

if TYPE_CHECKING:
    import typer as typer
else:

    class _Typer:
        """Stands for the module."""

        def __getattr__(self, name: str) -> object:
            if _reads.get() and name in ("Option", "Argument"):
                return Parameter.option if name == "Option" else Parameter.argument
            import typer

            return getattr(typer, name)

    typer = _Typer()


@contextmanager
def reading() -> Iterator[None]:
    """Within it, annotations that are evaluated declare a `Parameter`, without typer."""
    token = _reads.set(True)
    try:
        yield
    finally:
        _reads.reset(token)


class Parameter(NamedTuple):
    """A parameter of a command, as its annotation declares it.

    names: of an option, such as `--wait`; empty: typer makes it from the parameter's name.
    usual: False if it has properties that only typer knows.
    """

    is_option: bool
    names: tuple[str, ...]
    usual: bool

    @staticmethod
    def option(*names: str, **more: object) -> Parameter:
        """Return what `typer.Option` declares."""
        return Parameter(True, names, _usual(more))

    @staticmethod
    def argument(**more: object) -> Parameter:
        """Return what `typer.Argument` declares."""
        return Parameter(False, (), _usual(more))


def _usual(more: Mapping[str, object]) -> bool:
    """Return True if these properties say nothing about the words that are accepted."""
    return more.get("min", 0) == 0 and _HARMLESS.issuperset(more)


#: min: the fast path takes no negative number.
_HARMLESS = frozenset({"metavar", "help", "autocompletion", "show_default", "min"})
