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
from tunnelkit.text_format import shown

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import (
        AttachedAnswer,
        AttachedRanksAnswer,
        ProcessInfo,
    )
    from tunnelkit.session.runtime.control_calls import Attach


def attach(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RANK|PID|SEL",
            help="Needed if several run. SEL: ranks, such as 0-3,7 or node=1.",
            autocompletion=sources.ranks,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Editor port, if not the session's (40056)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Bring the debugger into a Python that runs without one, on any node of the job.

    One of `tk run`, a free one under `tk loop`, or what a job or pod that tk has
    joined (`tk up --attach-job ID`, `tk up POD`) runs by itself:

    tk attach          the only one, else a list
    tk attach 3        rank 3
    tk attach 12345    the process with that pid
    tk attach 0-3      these ranks, each at a port of its own
    tk attach node=1   the ranks of the second node; `tk help ranks` has more

    Then F5 is on it. The editor may leave and come again; the program runs on.
    """
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.model import check_port
    from tunnelkit.session.runtime.blocking_client import ask

    if port is not None:
        check_port(port)
    request = _request(target, port)
    answer = ask(find_session(), request)
    if as_json:
        say(json.dumps(answer))
    elif "choices" in answer:
        _list(answer["choices"])
    elif "ranks" in answer:
        _tell_ranks(answer)
    else:
        _tell(answer)
    if "choices" in answer:
        sys.exit(int(ExitCode.USAGE))
    if "ranks" in answer and answer["failed"]:
        sys.exit(int(ExitCode.DEBUG))


def _request(target: str | None, port: int | None) -> Attach:
    """A number alone is a rank or a pid; all else is a selection. Raises SelectionError."""
    from tunnelkit.debug.ranks.selection import parse_selection
    from tunnelkit.session.runtime.control_calls import Attach

    word = (target or "").strip()
    if target is None or (word.isascii() and word.isdigit() and len(word) < 10):
        return Attach(target=None if target is None else int(word), port=port)
    parse_selection(target)
    return Attach(selection=target, port=port)


def _list(choices: list[ProcessInfo]) -> None:
    several = len({one["node"] for one in choices}) > 1
    for one in choices:
        rank = "-" if one["rank"] is None else str(one["rank"])
        node = f"  {one['node']}" if several else ""
        say(shown(f"{one['pid']:>8}  {rank:>4}{node}  {_short(one['command'])}"))
    what = "pid, rank, node, command" if several else "pid, rank, command"
    note(f"which one? tk attach RANK|PID   (above: {what})")


def _tell(answer: AttachedAnswer) -> None:
    rank = "" if answer["rank"] is None else f"rank {answer['rank']}, "
    what = shown(f"{rank}pid {answer['attached']}: {_short(answer['command'])}")
    where = f"127.0.0.1:{answer['port']}"
    if answer["ready"]:
        already = "attached already" if answer["again"] else "attached"
        say(f"{already} ({what}): press F5 (port {where})")
    else:
        say(f"the program is in native code; once it is back in Python: F5 (port {where}; {what})")
    if answer["risk"]:
        note(shown(f"warning: {answer['node']}: {answer['risk']}"))


def _tell_ranks(answer: AttachedRanksAnswer) -> None:
    from tunnelkit.errors import TunnelkitError

    for one in answer["ranks"]:
        how = "attached already" if one["again"] else "attached"
        if not one["ready"]:
            how = "in native code, attached once it is back in Python"
        place = f"rank {one['rank']} · {one['node']} · pid {one['attached']}"
        say(shown(f"{place}: {how}; F5 on port 127.0.0.1:{one['port']}"))
    for risk in dict.fromkeys(one["risk"] for one in answer["ranks"] if one["risk"]):
        note(shown(f"warning: {risk}"))
    for failed in answer["failed"]:
        why = TunnelkitError.from_json(failed["failure"]).one_line()
        note(shown(f"rank {failed['rank']} · {failed['node']}: {why}"))


def _short(command: list[str]) -> str:
    text = shlex.join(command).replace("\n", " ")
    return text if len(text) <= 100 else text[:99] + "…"
