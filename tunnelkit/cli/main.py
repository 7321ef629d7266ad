"""`tk`: parse, call, render. A command's module is imported only when that command runs."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys
from typing import TYPE_CHECKING, cast

from tunnelkit.cli import fast_path
from tunnelkit.cli.registry import COMMANDS
from tunnelkit.cli.terminal.output import show_error
from tunnelkit.errors import ExitCode, TunnelkitError, UsageError

if TYPE_CHECKING:
    import typer

#: Allocations between two collections; Python's own is 700.
_GC_THRESHOLD = 20_000


def main(argv: list[str] | None = None) -> None:
    """Run `tk`: the console script's entry."""
    _collect_less()
    _open_streams()
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


def _collect_less() -> None:
    """Spare a short command the search for garbage: mostly imported modules are looked through, for
    some 10 ms at the start and 20 ms at the end."""
    gc.set_threshold(_GC_THRESHOLD)
    atexit.register(gc.freeze)


def _open_streams() -> None:
    """Open /dev/null for closed streams (`>&-`), and write any text in any locale."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            with contextlib.suppress(OSError):
                # The lowest free descriptor: none else may become the standard stream.
                opened = os.open(os.devnull, os.O_RDWR)
                setattr(sys, name, open(opened, "w" if fd else "r"))  # noqa: SIM115 - as long as tk
        elif fd and isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _run(words: list[str]) -> None:
    _check_cwd()
    if "_TK_COMPLETE" not in os.environ and sys.stderr is not None and sys.stderr.isatty():
        from tunnelkit.cli.terminal.kept_notice import notice

        notice(words)
    if "_TK_COMPLETE" in os.environ:
        if _complete():
            return
    elif _by_fast_path(words):
        return
    import typer

    from tunnelkit.cli.app import build

    position = _position(words)
    command = words[position] if position < len(words) else None
    completing = "_TK_COMPLETE" in os.environ
    names = {command} if command in COMMANDS and not completing else set(COMMANDS)
    if {"--version", "-V"} & set(words[:position]):
        names = set()
    # click.ClickException, or the copy of it that newer typers carry.
    click_exception = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[2])
    try:
        code = build(names)(words, prog_name="tk", standalone_mode=False)
    except typer.Abort:
        sys.exit(int(ExitCode.INTERRUPTED))
    except click_exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(int(ExitCode.USAGE))
        raise _usage_error(error) from None
    sys.exit(code or 0)


def _by_fast_path(words: list[str]) -> bool:
    try:
        return fast_path.run(words)
    except RuntimeError as error:
        # typer's, of a question that the command asked: Ctrl-C.
        if type(error).__name__ != "Abort":
            raise
        sys.exit(int(ExitCode.INTERRUPTED))


def _complete() -> bool:
    """Answer a shell that completes a line; False if it is one that only typer knows."""
    from tunnelkit.cli.completion import engine

    try:
        answer = engine.answer(os.environ)
    except Exception:
        # The user is in the middle of a line: print nothing.
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
    """Raise UsageError if the current directory was removed."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            "the current directory can't be used",
            cause=error.strerror,
            hint="change to one that is there",
        ) from None


def _usage_error(error: typer.BadParameter) -> UsageError:
    """Return typer's error about the command line as one line."""
    context = getattr(error, "ctx", None)  # some kinds have none
    path = context.command_path if context is not None else "tk"
    text = plain(str(error.format_message()).strip().rstrip("."))
    return UsageError(text[:1].lower() + text[1:], hint=f"`{path} --help` shows how it is used")


#: How the libraries below typer say that a value is no number, and how people do.
_NO_NUMBER = (
    (r"(?:Input should be a valid integer[^.]*|.* is not a valid int(?:eger)?)$", "a whole number"),
    (r"(?:Input should be a valid number[^.]*|.* is not a valid float)$", "a number"),
)


def plain(text: str) -> str:
    """Return a message about the command line in plain words."""
    import re

    head, colon, reason = text.partition(": ")
    for pattern, wanted in _NO_NUMBER:
        if re.match(pattern, reason):
            return f"{head}{colon}it takes {wanted}"
    return text


def _position(words: list[str]) -> int:
    """Return the index of the command: the first word that is no option."""
    return next((index for index, word in enumerate(words) if not word.startswith("-")), len(words))
