"""`tk demo`: the whole story on this machine."""

from __future__ import annotations

import sys
from typing import Annotated

from tunnelkit.cli.completion.options import lab_scheduler_option
from tunnelkit.cli.lazy_typer import typer


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave cluster and session up, and say how to play.")
    ] = False,
    scheduler: Annotated[str, lab_scheduler_option()] = "auto",
    kube: Annotated[bool, typer.Option("--kube", help="In a pod instead; needs kubectl.")] = False,
) -> None:
    """See all of it on this machine: a cluster, a job, F5, a cut.

    Uses directories of its own: your settings, sessions and lab stay untouched.

    tk demo           in a minute or two; nothing is left
    tk demo --keep    to play with it afterwards
    tk demo --kube
    """
    from tunnelkit.cli.terminal.context import run
    from tunnelkit.cli.terminal.output import paint
    from tunnelkit.demo.run import run as play
    from tunnelkit.errors import UsageError

    if scheduler not in ("auto", "slurm", "none"):
        raise UsageError(f"there is no scheduler {scheduler!r} here", hint="auto, slurm or none")
    sys.exit(run(play(keep=keep, scheduler=scheduler, kube=kube, out=sys.stdout, paint=paint)))
