"""`tk interrupt`: pause the program, or some of its ranks, in the debugger."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion import options, sources
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import note, say
from tunnelkit.errors import ExitCode
from tunnelkit.text_format import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tunnelkit.debug.loop_status import InterruptStatus


def interrupt(
    selection: Annotated[
        str | None,
        typer.Argument(
            metavar="SEL",
            help="Only these ranks, such as 3, 0-3,7 or node=1.",
            autocompletion=sources.selections,
        ),
    ] = None,
    loop: Annotated[int | None, options.loop_id_option()] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Pause the program where it is; its editor or console shows it stopped.

    tk interrupt          all that an editor or a console debugs
    tk interrupt 3        rank 3
    tk interrupt node=1   the ranks of the second node; `tk help ranks` has more

    Exits with 0 if all are paused; with 12 if one is in native code, and stops later; else with
    10: one waits for a debugger, has none, or has ended.
    """
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.debug.ranks.selection import parse_selection
    from tunnelkit.session.runtime.blocking_client import ask
    from tunnelkit.session.runtime.control_calls import LoopInterrupt

    if selection is not None:
        parse_selection(selection)
    answer = ask(find_session(), LoopInterrupt(loop=loop, selection=selection))
    processes = answer["processes"]
    if as_json:
        say(json.dumps(answer))
    elif all(one["rank"] is None for one in processes):
        for one in processes:
            _tell(one)
    else:
        _tell_ranks(processes)
    sys.exit(int(exit_code(processes)))


def exit_code(processes: Sequence[InterruptStatus]) -> ExitCode:
    """Return OK if all are paused, TIMEOUT if some will be later, else DEBUG."""
    states = {one["state"] for one in processes}
    if states == {"paused"}:
        return ExitCode.OK
    return ExitCode.TIMEOUT if "native" in states else ExitCode.DEBUG


def _tell(one: InterruptStatus) -> None:
    where = f" on {shown(one['node'])}" if one["node"] else ""
    place = f" at {shown(one['where'])}" if one["where"] else ""
    if one["paused"]:
        say(f"paused: the program (pid {one['pid']}{where}){place}")
        return
    if one["state"] != "native":
        note(f"not paused: the program {_why(one['state'], 'it')} (pid {one['pid']}{where})")
        return
    note(
        f"not paused yet: the program (pid {one['pid']}{where}) is in native code, where Python "
        "can't be stopped; it stops once it is back. Where it is: "
        f"tk run py-spy dump --pid {one['pid']}"
    )


def _tell_ranks(processes: Sequence[InterruptStatus]) -> None:
    """A line for each group of ranks of which the same is true."""
    from tunnelkit.debug.ranks.fold import fold_ranks

    groups: dict[tuple[str, str], list[int]] = {}
    for one in sorted(processes, key=lambda one: one["rank"] or 0):
        groups.setdefault((one["state"], one["where"]), []).append(one["rank"] or 0)
    for (state, where), ranks in groups.items():
        folded = fold_ranks(ranks)
        if state == "paused":
            say(f"{folded} paused at {shown(where)}" if where else f"{folded} paused")
        else:
            note(f"{folded} {_why(state, folded, many=len(ranks) > 1)}")


def _why(state: str, who: str, *, many: bool = False) -> str:
    be, stop = ("are", "stop once they are") if many else ("is", "stops once it is")
    if state == "native":
        return f"{be} in native code and {stop} back in Python"
    if state == "waiting":
        begin = "wait" if many else "waits"
        return f"{begin} for a debugger and {'have' if many else 'has'} not begun: press F5"
    if state == "nobody":
        run = "run" if many else "runs"
        return f"{run} without an editor or a console, which would show the stop: tk console {who}"
    return f"{'have' if many else 'has'} ended"
