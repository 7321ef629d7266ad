"""`tk pdb`: a program stopped at its first line, with a console or pdb's plain text for nc."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import note, say


def pdb(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="As you would type it there.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long to wait for somebody who debugs; default: $DEBUG_TIMEOUT, else 600.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Serve pdb's plain text here, for nc."),
    ] = None,
) -> None:
    """Run a program in the job, stopped at its first line.

    tk pdb --port 4444 python train.py     then: nc 127.0.0.1 4444
    """
    words = list(command or ())
    if port is not None:
        sys.exit(_text(words, port, timeout))


def _text(words: list[str], port: int, given_s: float | None) -> int:
    from tunnelkit.cli.commands.node.run import exit_code
    from tunnelkit.cli.terminal.context import find_session, run
    from tunnelkit.cli.views.pdb_text import PdbText
    from tunnelkit.debug.pdb.pdb_command import text_program, timeout_s
    from tunnelkit.model import check_port

    check_port(port)
    for text in text_program(words).notes:
        note(f"[tk] {text}")
    seconds = timeout_s(words, os.environ, given_s)
    end = run(PdbText(words, port=port, timeout_s=seconds).run(find_session()))
    if end is None:
        say(f"No client connect to server in {seconds:g} seconds, exit")
        return 1
    return exit_code(end)
