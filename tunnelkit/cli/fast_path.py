"""Plain command lines of the common commands, without typer.

Prompts, editors and scripts call `tk` all the time. Building an app of typer costs more than
the work of most commands. This parser reads the same declarations, and takes only plainly
correct command lines. All others, `--help` and mistakes too, go to typer. A test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import NamedTuple, get_args, get_origin

from tunnelkit.cli.lazy_typer import Parameter, reading
from tunnelkit.cli.registry import COMMANDS, RUN_PROGRAMS, WHOLE_LINES, find

#: The others are groups, or rare, or ask questions.
FAST = frozenset(COMMANDS) - set(
    "bugreport config console demo doctor help init lab pdb trust vscode".split()  # noqa: SIM905
)


class FastCommand(NamedTuple):
    """A command's function with its parameters.

    options: word -> (parameter, type, value of a switch or None). arguments: (parameter, type).
    mixed: options may follow arguments. whole: the function takes all words as they are.
    """

    function: Callable[..., None]
    options: Mapping[str, tuple[str, object, bool | None]]
    arguments: tuple[tuple[str, object, bool], ...]
    mixed: bool
    whole: bool = False


class _Unusual(Exception):
    """The command line, or the command's declaration, is for typer."""


def run(words: list[str]) -> bool:
    """Run the command line if it is a plain one; return False if it is for typer."""
    if words in (["--version"], ["-V"]):
        words = ["version"]
    if not words or words[0] not in FAST:
        return False
    try:
        command = declared(words[0])
        values = parse(command, words[1:])
    except _Unusual:
        return False
    command.function(**values)
    return True


def accepts(words: list[str]) -> dict[str, object] | None:
    """Return the parameters of a plain command line; None if it is for typer."""
    try:
        return parse(declared(words[0]), words[1:])
    except _Unusual:
        return None


def declared(name: str) -> FastCommand:
    """Return the command of that name, from its function's annotations."""
    function = find(name)
    if not isinstance(function, FunctionType):
        raise _Unusual
    options: dict[str, tuple[str, object, bool | None]] = {}
    arguments: list[tuple[str, object, bool]] = []
    needed = function.__code__.co_argcount - len(function.__defaults__ or ())
    for at, parameter in enumerate(function.__code__.co_varnames[: function.__code__.co_argcount]):
        with reading():
            # The command's own source, not input.
            annotation = eval(function.__annotations__[parameter], function.__globals__)  # noqa: S307
        kind, declaration = get_args(annotation)
        if not isinstance(declaration, Parameter) or not declaration.usual:
            raise _Unusual
        kind = _plain(kind)
        if declaration.is_option:
            options.update(_words(parameter, kind, declaration.names))
        else:
            arguments.append((parameter, kind, at < needed))
    return FastCommand(
        function, options, tuple(arguments), name not in RUN_PROGRAMS, name in WHOLE_LINES
    )


def _plain(kind: object) -> object:
    """Return the type without `| None`: str, int, float, bool, Path or list[str]."""
    kinds = [one for one in get_args(kind) if one is not type(None)]
    if get_origin(kind) is not list and kinds:
        (kind,) = kinds
    if kind not in (str, int, float, bool, Path, list[str]):
        raise _Unusual
    return kind


def _words(
    parameter: str, kind: object, names: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, object, bool | None]]]:
    for name in names or ("--" + parameter.replace("_", "-"),):
        on, _, off = name.partition("/")
        if kind == list[str] or (off and kind is not bool):
            raise _Unusual
        yield on, (parameter, kind, True if kind is bool else None)
        if off:
            yield off, (parameter, kind, False)


def parse(command: FastCommand, words: list[str]) -> dict[str, object]:
    """Return the function's parameters. Raises _Unusual for all that is not plain."""
    if command.whole:
        if not words or words[0] in ("-h", "--help"):
            raise _Unusual
        return {"words": words}
    values: dict[str, object] = {}
    rest: list[str] = []
    line = iter(words)
    for word in line:
        if not word.startswith("-"):
            rest.append(word)
            if not command.mixed:
                rest.extend(line)
            continue
        if word not in command.options:
            raise _Unusual
        parameter, kind, switch = command.options[word]
        values[parameter] = switch if switch is not None else _value(kind, next(line, "--"))
    for parameter, kind, is_needed in command.arguments:
        if kind == list[str]:
            taken, rest = rest, []
            if taken:
                values[parameter] = taken
        elif rest:
            values[parameter] = _value(kind, rest.pop(0))
        if is_needed and parameter not in values:
            raise _Unusual
    if rest:
        raise _Unusual
    return values


def _value(kind: object, word: str) -> object:
    # A word that begins so is mostly a forgotten value.
    if word.startswith("-"):
        raise _Unusual
    if kind is str or kind is Path:
        return kind(word)
    # typer takes more spellings of numbers, and says what is wrong with others.
    if not word.isascii() or not word.replace(".", "", 1).isdigit():
        raise _Unusual
    if kind is int and word.isdigit():
        return int(word)
    if kind is float:
        return float(word)
    raise _Unusual
