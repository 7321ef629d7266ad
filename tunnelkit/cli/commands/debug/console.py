"""`tk console`: one console over all ranks of a program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion import options, sources
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tunnelkit.session.runtime.paths import SessionPaths

_SILENT_S = 5.0


def console(
    selection: Annotated[
        str | None,
        typer.Argument(
            metavar="SEL",
            help="The ranks that get the lines at first, such as 0-3,7 or node=1.",
            autocompletion=sources.selections,
        ),
    ] = None,
    line: Annotated[
        list[str] | None,
        typer.Option("-c", metavar="LINE", help="Run this line and end; may be given again."),
    ] = None,
    loop: Annotated[int | None, options.loop_id_option()] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With -c: print the answers as JSON.")
    ] = False,
) -> None:
    """Debug all ranks of `tk loop` in one console; equal answers are one.

    tk console                then: p loss, n, on 3, w, c, help
    tk console 0-3            lines go to these ranks
    tk console -c 'p loss'    for scripts; exit code 0 only if all ranks answered

    An editor may debug the same ranks. Leaving the console leaves the program as it is.
    """
    from tunnelkit.cli.terminal.context import find_session, run
    from tunnelkit.debug.ranks.selection import parse_selection
    from tunnelkit.errors import UsageError

    if as_json and not line:
        raise UsageError("--json needs a line", hint="for example: tk console --json -c 'p loss'")
    if selection is not None:
        parse_selection(selection)
    lines = list(line or ())
    by_hand = not lines and sys.stdin.isatty()
    if not lines and not by_hand:
        lines = sys.stdin.read().splitlines()
        if not lines:
            raise UsageError(
                "the console got no lines", hint="give it some: tk console -c LINE, or a terminal"
            )
    paths = find_session()
    if not by_hand:
        sys.exit(run(_script(paths, loop, selection, lines, as_json=as_json)))
    sys.exit(run(_interactive(paths, loop, selection)))


async def _script(
    paths: SessionPaths, loop: int | None, selection: str | None, lines: list[str], *, as_json: bool
) -> int:
    from tunnelkit.cli.terminal.output import safe, say
    from tunnelkit.cli.views.console_files import new_core
    from tunnelkit.cli.views.console_shell import ConsoleShell, results_json, run_lines
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.control_calls import ConsoleStream

    began = False

    def show(texts: Sequence[str]) -> None:
        # A script asks for answers, not for what a console says as it begins.
        if began and not as_json:
            print(safe("\n".join(texts)), flush=True)

    shell = ConsoleShell(new_core(), show)
    first = [] if selection is None else [f"on {selection}"]
    async with (
        control_client.connect(paths) as session,
        shell.running(session.open(ConsoleStream(loop=loop))) as lost,
    ):
        # `c` would let only those begin that are there.
        await shell.all_there()
        began = True
        code = await run_lines(shell, [*first, *lines], lost)
    if as_json:
        say(results_json(shell.results[len(first) :]))
    return code


async def _interactive(paths: SessionPaths, loop: int | None, selection: str | None) -> int:
    from tunnelkit.cli.views.console_files import history_of, new_core
    from tunnelkit.cli.views.console_prompt import ConsolePrompt, show_lines
    from tunnelkit.cli.views.console_shell import ConsoleShell
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.control_calls import ConsoleStream

    core = new_core()
    shell = ConsoleShell(core, show_lines)
    prompt = ConsolePrompt(core, history_of())
    while True:
        async with (
            control_client.connect(paths) as session,
            shell.running(session.open(ConsoleStream(loop=loop))) as lost,
        ):
            if selection is not None:
                shell.type(f"on {selection}")
                selection = None
            if await prompt.serve(shell, lost):
                return 0
        shell.lose_session()
        if not await _session_again(paths):
            return 1


async def _session_again(paths: SessionPaths) -> bool:
    """Wait for the successor of a killed session, which has its loops then.

    False if the user had ended it. Raises TunnelkitError if the successor does not become ready.
    """
    import asyncio

    from tunnelkit.errors import NoSessionError
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.blocking_client import is_alive
    from tunnelkit.session.runtime.control_calls import Settled

    note("[tk] the session is gone; the ranks stay as they are. Waiting for `tk up` ...")
    while True:
        if is_alive(paths):
            try:
                async with control_client.connect(paths) as session:
                    await session.call(Settled())
                return True
            except NoSessionError:
                if await _is_over(paths):
                    raise
                # It was the one that is going.
        elif not paths.launch.exists():
            return False
        await asyncio.sleep(0.2)


async def _is_over(paths: SessionPaths) -> bool:
    """Return True if a session answers whose allocation is over."""
    import contextlib

    from tunnelkit.errors import TunnelkitError
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.control_calls import Status
    from tunnelkit.session.runtime.state import SessionState

    with contextlib.suppress(TunnelkitError):
        async with control_client.connect(paths) as session:
            return (await session.call(Status()))["state"] == SessionState.ENDED
    return False
