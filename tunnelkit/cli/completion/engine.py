"""The answer to a press of TAB, without an app.

Building one takes longer than people wait for TAB. So all commands with their options are
written down once (for this version of these files) and read back here; typer's scripts for
the shells stay as they are, only who answers them differs.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tunnelkit import __version__

if TYPE_CHECKING:
    from typer import Typer
    from typer._click import Command as ClickCommand

    #: What an app or a command was made of.
    Origin = Typer | Callable[..., object] | None


class Command(TypedDict):
    """A command in the table.

    options: word -> takes a value, how it is completed, help. arguments: how each is completed, and
    if it takes many words. rest: after the first argument all is another program's.
    """

    help: str
    options: dict[str, tuple[bool, str | None, str]]
    arguments: list[tuple[str | None, bool]]
    rest: bool
    commands: dict[str, Command]


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line: the whole words after `tk`, and the word that is being typed."""

    words: tuple[str, ...]
    typed: str


def answer(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the text for the shell and the exit code; None for another program's completion."""
    kind = environ.get("_TK_COMPLETE", "")
    if kind not in ("complete_bash", "complete_zsh", "complete_fish"):
        return None
    line = line_of(environ)
    found = offers(table(), line)
    if kind == "complete_bash":
        return "\n".join(found), 0
    if kind == "complete_zsh":
        return _zsh(found), 0
    if environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return "", 0 if found else 1
    return "\n".join(f"{name}\t{text}" if text else name for name, text in found.items()), 0


def line_of(environ: Mapping[str, str]) -> CommandLine:
    """Read the line as bash or (zsh, fish) typer's script passes it."""
    if environ.get("_TK_COMPLETE") == "complete_bash":
        words = split(environ.get("COMP_WORDS", ""))
        cursor = environ.get("COMP_CWORD", "")
        at = int(cursor) if cursor.isdigit() else len(words)
        return CommandLine(tuple(words[1:at]), words[at] if at < len(words) else "")
    text = environ.get("_TYPER_COMPLETE_ARGS", "")
    words = split(text)[1:]
    if words and not text.endswith(" "):
        return CommandLine(tuple(words[:-1]), words[-1])
    return CommandLine(tuple(words), "")


def split(text: str) -> list[str]:
    """Split an unfinished line into words; an open quote is closed."""
    import shlex

    for end in ("", "'", '"', "\\"):
        with contextlib.suppress(ValueError):
            return shlex.split(text + end)
    return text.split()


def offers(top: Command, line: CommandLine) -> dict[str, str]:
    """Return the words that may come next, each with its help."""
    command, typed = top, line.typed
    place, wants, options_over = 0, None, False
    for word in line.words:
        if wants is not None:
            # bash splits `--link=x` into three words.
            wants = wants if word == "=" else None
        elif options_over or not word.startswith("-") or word == "-":
            below = command["commands"].get(word)
            if below is not None:
                command, place = below, 0
            elif command["commands"]:
                return {}  # there is no such command
            else:
                place += 1
                options_over = options_over or command["rest"]
        elif word == "--":
            options_over = True
        elif word in command["options"] and command["options"][word][0]:
            wants = command["options"][word]
    if wants is not None:
        return _values(wants[1], "" if typed == "=" else typed)
    if typed.startswith("-") and not options_over:
        options = command["options"]
        name, given, value = typed.partition("=")
        if given:
            takes_value, how, _ = options.get(name, (False, None, ""))
            return {f"{name}={one}": "" for one in _values(how if takes_value else None, value)}
        return {word: options[word][2] for word in options if word.startswith(typed)}
    if command["commands"]:
        return {
            name: one["help"] for name, one in command["commands"].items() if name.startswith(typed)
        }
    arguments = command["arguments"]
    if place >= len(arguments):
        # More words than arguments: only where the last one takes many.
        arguments = [one for one in arguments[-1:] if one[1]]
        place = 0
    return _values(arguments[place][0], typed) if arguments else {}


def _values(how: str | None, typed: str) -> dict[str, str]:
    if how is None:
        return {}
    from tunnelkit.cli.completion import sources

    found: list[str] = getattr(sources, how)(typed)
    return dict.fromkeys(found, "")


def _zsh(found: Mapping[str, str]) -> str:
    """As typer's script for zsh evaluates it."""

    def quoted(text: str) -> str:
        for char, instead in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", r"\\:")):
            text = text.replace(char, instead)
        return f'"{text}"'

    if not found:
        return "_files"
    items = (quoted(name) + (f":{quoted(text)}" if text else "") for name, text in found.items())
    return "_arguments '*: :((" + "\n".join(items) + "))'"


# -- the table ----------------------------------------------------------------


def table() -> Command:
    """Return all commands: from the cache, or built and put there."""
    from tunnelkit.session.runtime.paths import cache_root

    path, stamp = cache_root() / "commands.json", _stamp()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text())
        if kept["stamp"] == stamp:
            top: Command = kept["top"]
            return top
    made = make()
    _keep(path, {"stamp": stamp, "top": made})
    return made


def _stamp() -> str:
    """Return a text that changes whenever a command may have changed."""
    cli = Path(__file__).parent.parent
    times = [one.stat().st_mtime_ns for one in cli.rglob("*.py")]
    return f"{__version__} {sys.version_info[:2]} {len(times)} {max(times)}"


def _keep(path: Path, data: object) -> None:
    from tunnelkit.session.runtime.paths import write_private

    with contextlib.suppress(OSError):
        write_private(path, json.dumps(data))


def make() -> Command:
    """Build the table from the commands themselves (slow)."""
    import typer.main

    from tunnelkit.cli.app import build
    from tunnelkit.cli.registry import COMMANDS

    app = build(set(COMMANDS))
    return _command(app, typer.main.get_command(app))


def _command(origin: Origin, command: ClickCommand) -> Command:
    """Return the table's entry for a click command."""
    from typer import Typer

    hows = _completers(origin)
    below = _below(origin) if isinstance(origin, Typer) else {}
    commands: dict[str, ClickCommand] = getattr(command, "commands", {})
    made: Command = {
        "help": _short(command.get_short_help_str(limit=80)),
        "options": {},
        "arguments": [],
        "rest": not command.context_settings.get("allow_interspersed_args", True),
        "commands": {
            name: _command(below[name], one) for name, one in commands.items() if not one.hidden
        },
    }
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        how = hows.get(parameter.name or "")
        if parameter.param_type_name == "argument":
            made["arguments"].append((how, parameter.nargs == -1))
            continue
        takes_value = not any(getattr(parameter, name, False) for name in ("is_flag", "count"))
        for word in [*parameter.opts, *parameter.secondary_opts]:
            made["options"][word] = (takes_value, how, _short(getattr(parameter, "help", "") or ""))
    for word in ("-h", "--help"):
        made["options"][word] = (False, None, "Show this message and exit.")
    return made


def _below(app: Typer) -> dict[str, Origin]:
    """Return the functions and apps behind the commands of an app."""
    found: dict[str, Origin] = {
        group.name or "": group.typer_instance for group in app.registered_groups
    }
    for one in app.registered_commands:
        found[str(one.name or getattr(one.callback, "__name__", ""))] = one.callback
    return found


def _completers(origin: Origin) -> dict[str, str]:
    """Parameter -> the function in sources.py that completes it."""
    from typer.utils import get_params_from_function

    if not callable(origin) or hasattr(origin, "registered_commands"):
        return {}
    found = {}
    for name, parameter in get_params_from_function(origin).items():
        complete = getattr(parameter.default, "autocompletion", None)
        if complete is not None:
            found[name] = complete.__name__
    return found


def _short(text: str) -> str:
    return " ".join(text.split())
