"""`tk why`: why a job waits, is slow or failed, and what to type next."""

from __future__ import annotations

from typing import Annotated

from tunnelkit.cli.completion import sources
from tunnelkit.cli.completion.options import code_option, job_argument, login_option, profile_option
from tunnelkit.cli.lazy_typer import typer


def why(
    job: Annotated[str | None, job_argument()] = None,
    explain: Annotated[str | None, code_option()] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with 14 if the job failed, or can never start."),
    ] = False,
    sample: Annotated[
        int,
        typer.Option("--sample", metavar="SECONDS", help="How long a running job is sampled."),
    ] = 10,
    log: Annotated[
        str | None,
        typer.Option(
            "--log", metavar="FILE", help="Judge an ended job by this file of the login host."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON.")] = False,
    sooner: Annotated[
        str | None,
        typer.Option(
            "--start-sooner",
            metavar="MINUTES|auto",
            help="Shorten a waiting job's time limit; it keeps its place.",
            autocompletion=sources.automatic,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --start-sooner: ask nothing.")
    ] = False,
    profile: Annotated[str | None, profile_option()] = None,
    login: Annotated[str | None, login_option()] = None,
) -> None:
    """Say why a job waits, is slow or failed, how that is known, and what to type next.

    The job may be any of yours, submitted by tk or not. A live session's connection is used.

    tk why                    the session's job, else your newest
    tk why POD                Kubernetes: a pod, or TYPE/NAME
    tk why 4711               one job; one that runs is sampled for 10 s
    tk why --sample 30        for longer
    tk why --start-sooner 38  shorten it to 38 min, as an earlier tk why offered
    tk why 4711 --log out/train.log   where the scheduler has forgotten it
    tk why --explain oom-limit
    tk why 4711 --json | jq '.verdicts[0].code'
    """
    from tunnelkit.cli.views.jobs.why import WhyOptions, explain_code, show_why

    if explain is not None:
        explain_code(explain, as_json=as_json)
    elif sooner is not None:
        from tunnelkit.cli.views.jobs.start_sooner import start_sooner

        start_sooner(WhyOptions(job, check, as_json, profile, login, 0), sooner, yes=yes)
    else:
        show_why(WhyOptions(job, check, as_json, profile, login, sample, log or ""))
