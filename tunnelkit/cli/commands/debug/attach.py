"""`tk attach`: bring the debugger into a program that runs already."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion import sources
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import note, say
from tunnelkit.errors import ExitCode

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import AttachedAnswer, ProcessInfo


def attach(
    target: Annotated[
        int | None,
        typer.Argument(
            metavar="RANK|PID",
            help="Needed if several run.",
            min=0,
            autocompletion=sources.ranks,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Editor port, if not the session's (40056)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Bring the debugger into a Python that runs without one.

    One of `tk run`, or a free one under `tk loop`:

    tk attach         the only one, else a list
    tk attach 3       rank 3
    tk attach 12345   the process with that pid

    Then F5 is on it. The editor may leave and come again; the program runs on.
    """
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.model import check_port
    from tunnelkit.session.runtime.blocking_client import ask
    from tunnelkit.session.runtime.control_calls import Attach

    if port is not None:
        check_port(port)
    answer = ask(find_session(), Attach(target=target, port=port))
    if as_json:
        say(json.dumps(answer))
    elif "choices" in answer:
        _list(answer["choices"])
    else:
        _tell(answer)
    if "choices" in answer:
        sys.exit(int(ExitCode.USAGE))


def _list(choices: list[ProcessInfo]) -> None:
    for one in choices:
        rank = "-" if one["rank"] is None else str(one["rank"])
        say(f"{one['pid']:>8}  {rank:>4}  {_short(one['command'])}")
    note("which one? tk attach RANK|PID   (above: pid, rank, command)")


def _tell(answer: AttachedAnswer) -> None:
    rank = "" if answer["rank"] is None else f"rank {answer['rank']}, "
    what = f"{rank}pid {answer['attached']}: {_short(answer['command'])}"
    where = f"127.0.0.1:{answer['port']}"
    if answer["ready"]:
        already = "attached already" if answer["again"] else "attached"
        say(f"{already} ({what}): press F5 (port {where})")
    else:
        say(f"the program is in native code; once it is back in Python: F5 (port {where}; {what})")


def _short(command: list[str]) -> str:
    text = shlex.join(command).replace("\n", " ")
    return text if len(text) <= 100 else text[:99] + "…"
