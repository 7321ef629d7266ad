"""`tk top`: a job's nodes, ranks and GPUs, live."""

from __future__ import annotations

from typing import Annotated

from tunnelkit.cli.completion.options import job_argument, login_option, profile_option
from tunnelkit.cli.lazy_typer import typer


def top(
    job: Annotated[str | None, job_argument()] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one look as text, and leave.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one sample as JSON.")] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="A row for each GPU.")] = False,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="A row for each rank or program; the default.")
    ] = False,
    threads: Annotated[bool, typer.Option("--threads", help="The busiest threads.")] = False,
    history: Annotated[
        bool, typer.Option("--history", help="The last hour of each row, as the session kept it.")
    ] = False,
    profile: Annotated[str | None, profile_option()] = None,
    login: Annotated[str | None, login_option()] = None,
) -> None:
    """Show what a running job's nodes, ranks and GPUs do; the one that differs most is marked.

    The job may be any of yours. The nodes are sampled only while you look, within the job.
    On a terminal the screen is live: r ranks, g GPUs, t threads, n nodes, q quit. It needs
    textual: pip install 'tunnelkit[top]'. What it calls the reason is `tk why`'s.

    tk top                 the session's job, else your newest
    tk top 4711 --once     one sample as text
    tk top --gpu           a row for each GPU
    tk top --json | jq '.rows[] | select(.worst != "")'
    """
    from tunnelkit.cli.views.top.frames import TopSource
    from tunnelkit.cli.views.top.show import TopOptions, show_top
    from tunnelkit.cli.views.top.tables import Show
    from tunnelkit.errors import UsageError

    if gpu + ranks + threads > 1:
        raise UsageError("--gpu, --ranks and --threads are three views", hint="give one of them")
    show = Show.GPUS if gpu else Show.THREADS if threads else Show.RANKS
    show_top(TopOptions(TopSource(job, profile, login), show, once, history, as_json))
