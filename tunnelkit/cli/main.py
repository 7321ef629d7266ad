"""`tk`: parse, call, render. A command's module is imported only when that command runs."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, cast

from tunnelkit import __version__
from tunnelkit.cli import quick
from tunnelkit.cli.console import show_error
from tunnelkit.errors import ExitCode, TunnelkitError, UsageError

if TYPE_CHECKING:
    import typer

#: command (or group) -> module below tunnelkit.cli that adds it by its `register`.
COMMANDS = {
    "up": "up",
    "down": "up",
    "status": "status",
    "logs": "status",
    "run": "run",
    "shell": "run",
    "auth": "auth",
    "loop": "loop",
    "attach": "attach",
    "interrupt": "interrupt",
    "ready": "ready",
    "sync": "sync",
    "pull": "pull",
    "forward": "forward",
    "mount": "mount",
    "umount": "mount",
    "init": "init",
    "trust": "trust",
    "vscode": "vscode",
    "doctor": "doctor",
    "bugreport": "bugreport",
    "help": "help",
    "config": "config",
    "demo": "demo",
    "lab": "lab",
    "version": "version",
}

_HELP = """Debug on a cluster as if it were your laptop.

    tk init                        set up this project
    tk up node4 --gpus 1 --cpus 2  tunnels, allocation, mirror
    tk loop python 2.py            every F5 gets a fresh debuggee
    tk demo                        see it all on this machine
"""


def build(names: set[str]) -> typer.Typer:
    """The app with these commands only; all of them for help."""
    import typer

    from tunnelkit.cli.groups import Commands

    app = typer.Typer(
        cls=Commands,
        help=with_examples_kept(_HELP),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
    )

    @app.callback()
    def common(
        version: bool = typer.Option(
            False, "--version", "-V", help="Show the version and exit.", callback=_show_version
        ),
        debug: bool = typer.Option(False, "--debug", help="Show tracebacks."),
    ) -> None:
        pass

    for module in dict.fromkeys(COMMANDS[name] for name in COMMANDS if name in names):
        importlib.import_module(f"tunnelkit.cli.{module}").register(app)
    _keep_examples(app)
    return app


def _keep_examples(app: typer.Typer) -> None:
    """Keep the lines of examples in help texts as they are; other text is wrapped."""
    for command in app.registered_commands:
        text = command.help or (command.callback.__doc__ if command.callback else None)
        command.help = with_examples_kept(text or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _keep_examples(group.typer_instance)


def with_examples_kept(text: str) -> str:
    """Mark, as click wants it (a line with a backspace), each paragraph of examples: one that
    begins with spaces or with `tk`."""
    from inspect import cleandoc

    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(f"\b\n{one}" if one.startswith(("  ", "tk ")) else one for one in paragraphs)


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
    except Exception as error:
        if debug:
            raise
        show_error(
            TunnelkitError(
                f"tk met an error of its own, {type(error).__name__}",
                cause=str(error) or None,
                hint="`tk --debug COMMAND` shows where; please report it with `tk bugreport`",
            )
        )
        sys.exit(int(ExitCode.FAILURE))


def _run(words: list[str]) -> None:
    _check_cwd()
    if "_TK_COMPLETE" in os.environ:
        if _complete():
            return
    elif quick.run(words):
        return
    import typer

    position = _position(words)
    command = words[position] if position < len(words) else None
    completing = "_TK_COMPLETE" in os.environ
    names = {command} if command in COMMANDS and not completing else set(COMMANDS)
    if {"--version", "-V"} & set(words[:position]):
        names = set()
    # click.ClickException, or the copy of it that newer typers carry.
    click_exception = cast("type[Exception]", typer.BadParameter.__mro__[2])
    try:
        code = build(names)(words, prog_name="tk", standalone_mode=False)
    except typer.Abort:
        sys.exit(int(ExitCode.INTERRUPTED))
    except click_exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            cast(Any, error).show()
            sys.exit(int(ExitCode.USAGE))
        raise _usage_error(error) from None
    sys.exit(code or 0)


def _complete() -> bool:
    """Answer a shell that completes a line; False if it is one that only typer knows."""
    from tunnelkit.cli import tab

    try:
        answer = tab.answer(os.environ)
    except Exception:
        # The person is in the middle of a line: no word may come between.
        sys.exit(int(ExitCode.FAILURE))
    if answer is None:
        return False
    text, code = answer
    if text:
        print(text)
    if code:
        sys.exit(code)
    return True


def _check_cwd() -> None:
    """Every command begins where it is called; a directory that was removed is no place."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            "the current directory can't be used",
            cause=error.strerror,
            hint="change to one that is there",
        ) from None


def _usage_error(error: Any) -> UsageError:
    """What typer has against the command line, in one line."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tk"
    text = plain(str(error.format_message()).strip().rstrip("."))
    return UsageError(text[:1].lower() + text[1:], hint=f"`{path} --help` shows how it is used")


#: How the libraries below typer say that a value is no number, and how people do.
_NO_NUMBER = (
    (r"(?:Input should be a valid integer[^.]*|.* is not a valid int(?:eger)?)$", "a whole number"),
    (r"(?:Input should be a valid number[^.]*|.* is not a valid float)$", "a number"),
)


def plain(text: str) -> str:
    """A message about the command line, in words for people."""
    import re

    head, colon, reason = text.partition(": ")
    for pattern, wanted in _NO_NUMBER:
        if re.match(pattern, reason):
            return f"{head}{colon}it takes {wanted}"
    return text


def _position(words: list[str]) -> int:
    """Where the command stands: the first word that is no option."""
    return next((index for index, word in enumerate(words) if not word.startswith("-")), len(words))


def _show_version(value: bool) -> None:
    if value:
        import typer

        print(f"tk {__version__}")
        raise typer.Exit
