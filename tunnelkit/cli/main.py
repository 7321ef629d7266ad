"""`tk`: parse, call, render. A command's module is imported only when that command runs."""

from __future__ import annotations

import importlib
import os
import sys

import typer

from tunnelkit import __version__
from tunnelkit.cli.console import show_error
from tunnelkit.errors import ExitCode, TunnelkitError

#: command (or group) -> module below tunnelkit.cli that adds it by its `register`.
COMMANDS = {
    "up": "up",
    "down": "up",
    "status": "status",
    "logs": "status",
    "run": "run",
    "shell": "run",
    "loop": "loop",
    "ready": "ready",
    "sync": "ready",
    "forward": "forward",
    "mount": "mount",
    "umount": "mount",
    "init": "init",
    "vscode": "vscode",
    "config": "config",
    "demo": "demo",
    "lab": "lab",
}

_HELP = """Debug on a cluster as if it were your laptop.

    tk init                                           set up this project
    tk up node4 --gpus 1 --cpus 2                     tunnels, allocation, mirror
    tk loop python -m debugpy --wait-for-client 2.py  every F5 gets a fresh debuggee
    tk demo                                           see it all on this machine
"""


def build(names: set[str]) -> typer.Typer:
    """The app with these commands only; all of them for help and completion."""
    app = typer.Typer(
        help=_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
    )

    @app.callback()
    def common(
        version: bool = typer.Option(
            False, "--version", help="Show the version and exit.", callback=_show_version
        ),
        debug: bool = typer.Option(False, "--debug", help="Show tracebacks."),
    ) -> None:
        pass

    for module in dict.fromkeys(COMMANDS[name] for name in COMMANDS if name in names):
        importlib.import_module(f"tunnelkit.cli.{module}").register(app)
    return app


def main(argv: list[str] | None = None) -> None:
    """The console script's entry."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words[: _position(words) + 1]
    try:
        _run(words)
    except TunnelkitError as error:
        if debug:
            raise
        show_error(error)
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        sys.exit(int(ExitCode.INTERRUPTED))
    except BrokenPipeError:
        # `tk logs | head`: the reader has what it wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)


def _run(words: list[str]) -> None:
    command = words[_position(words)] if _position(words) < len(words) else None
    completing = any(name.endswith("_COMPLETE") for name in os.environ)
    names = {command} if command in COMMANDS and not completing else set(COMMANDS)
    build(names)(words, prog_name="tk")


def _position(words: list[str]) -> int:
    """Where the command stands: the first word that is no option."""
    return next((index for index, word in enumerate(words) if not word.startswith("-")), len(words))


def _show_version(value: bool) -> None:
    if value:
        print(f"tk {__version__}")
        raise typer.Exit
