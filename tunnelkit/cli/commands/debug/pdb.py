"""`tk pdb`: a program from its first line, with a console or pdb's plain text for nc."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from tunnelkit.cli.completion import options
from tunnelkit.cli.lazy_typer import typer


def pdb(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="As you would type it there.")
    ] = None,
    line: Annotated[
        list[str] | None,
        typer.Option("-c", metavar="LINE", help="A line of a script; may be given again."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long to wait for somebody who debugs; default: DEBUG_TIMEOUT, or 600.",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leaving the console leaves the program as it is.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve pdb's plain text here, for nc.")
    ] = None,
    rank: Annotated[str | None, options.rank_option()] = None,
) -> None:
    """Run a program in the job, stopped at its first line, with a console on it.

    tk pdb python train.py               its exit code is tk's; q ends it
    tk pdb torchrun --nproc-per-node 4 train.py
    tk pdb -c 'b train.py:9' -c c -c 'p loss' train.py
    tk pdb --port 4444 python train.py   then: nc 127.0.0.1 4444
    tk pdb                               the console on what runs

    breakpoint() stops in any rank. With --port it is Python's own pdb: the program's input and
    output are the client's, it starts again at its end, and only your own user can connect.
    """
    from tunnelkit.errors import UsageError

    words = list(command or ())
    if port is not None:
        if line or keep or rank is not None:
            raise UsageError(
                "--port serves pdb itself, without -c, --keep and --rank",
                hint="leave --port out for the console",
            )
        sys.exit(_text(words, port, timeout))
    if words:
        sys.exit(_console(words, line, timeout, keep=keep, rank=rank))
    from tunnelkit.cli.commands.debug.console import console

    console(line=line)


def _console(
    words: list[str],
    lines: list[str] | None,
    given_s: float | None,
    *,
    keep: bool,
    rank: str | None,
) -> int:
    from tunnelkit.cli.terminal.context import find_session, run
    from tunnelkit.cli.views.pdb_console import PdbConsole, PdbOptions
    from tunnelkit.debug.pdb.pdb_command import console_command, timeout_s
    from tunnelkit.debug.rank_set import parse_ranks
    from tunnelkit.session.runtime.control_calls import LoopStream

    only = parse_ranks(rank) if rank is not None else None
    console_command(words, ranks=rank is not None)
    wanted = PdbOptions(lines=lines, keep=keep, timeout_s=timeout_s(words, os.environ, given_s))
    stream = LoopStream(
        words=words,
        here=os.getcwd(),
        standby=False,
        preload=[],
        post_mortem=True,
        ranks=rank is not None,
        only=None if only is None else list(only),
        once=True,
        keep=keep,
    )
    paths = find_session()

    async def debug() -> int:
        return await PdbConsole(paths, stream, wanted).run()

    return run(debug())


def _text(words: list[str], port: int, given_s: float | None) -> int:
    from tunnelkit.cli.terminal.context import find_session, run
    from tunnelkit.cli.terminal.output import say
    from tunnelkit.cli.terminal.stream_end import exit_code
    from tunnelkit.cli.views import pdb_run
    from tunnelkit.cli.views.pdb_text import PdbText
    from tunnelkit.debug.pdb.pdb_command import text_program, timeout_s
    from tunnelkit.model import check_port

    check_port(port)
    for text in text_program(words).notes:
        pdb_run.say(text)
    seconds = timeout_s(words, os.environ, given_s)
    end = run(PdbText(words, port=port, timeout_s=seconds).run(find_session()))
    if end is None:
        say(f"No client connect to server in {seconds:g} seconds, exit")
        return 1
    return exit_code(end)
