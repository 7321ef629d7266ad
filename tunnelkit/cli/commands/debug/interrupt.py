"""`tk interrupt`: pause the program that an editor debugs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion import options, sources
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import note, say
from tunnelkit.errors import ExitCode

if TYPE_CHECKING:
    from tunnelkit.debug.loop_status import InterruptStatus


def interrupt(
    rank: Annotated[
        int | None,
        typer.Argument(metavar="RANK", help="Only this rank.", min=0, autocompletion=sources.ranks),
    ] = None,
    loop: Annotated[int | None, options.loop_id_option()] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Pause the program where it is; its editor shows it stopped.

    tk interrupt      all that editors debug
    tk interrupt 3    rank 3
    """
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.session.runtime.blocking_client import ask
    from tunnelkit.session.runtime.control_calls import LoopInterrupt

    answer = ask(find_session(), LoopInterrupt(loop=loop, rank=rank))
    if as_json:
        say(json.dumps(answer))
    else:
        for one in answer["processes"]:
            _tell(one)
    if not all(one["paused"] for one in answer["processes"]):
        sys.exit(int(ExitCode.TIMEOUT))


def _tell(one: InterruptStatus) -> None:
    what = "the program" if one["rank"] is None else f"rank {one['rank']}"
    where = f" on {one['node']}" if one["node"] else ""
    if one["paused"]:
        say(f"paused: {what} (pid {one['pid']}{where})")
        return
    note(
        f"not paused yet: {what} (pid {one['pid']}{where}) is in native code, where Python can't "
        f"be stopped; it stops once it is back. Where it is: tk run py-spy dump --pid {one['pid']}"
    )
