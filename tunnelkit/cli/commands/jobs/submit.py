"""`tk submit`: a batch script of the user's own, kept with its resources if it fails."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion.options import login_option, text_option
from tunnelkit.cli.lazy_typer import typer

if TYPE_CHECKING:
    from tunnelkit.link.base import Prompter
    from tunnelkit.session.runtime.control_answers import SubmitAnswer
    from tunnelkit.session.submit.command_line import SubmitLine


def submit(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[SBATCH OPTIONS] SCRIPT [ARGS]",
            help="A batch script on this computer; its text is sent.",
        ),
    ],
    keep_on_failure: Annotated[
        str | None,
        text_option(
            "[=TIME]", "If it fails, keep the job with all it has, for an hour or that time."
        ),
    ] = None,
    post_mortem: Annotated[
        str | None,
        text_option(
            "[=TIME]", "A Python of it that dies of an exception stands there, so long: 1h."
        ),
    ] = None,
    idle: Annotated[
        str | None, text_option("=TIME", "Let go after so long without anybody: 20m.")
    ] = None,
    keep_max: Annotated[
        str | None, text_option("=N", "Keep so many elements of a job array: 1.")
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Print what would be sent.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the job as JSON.")] = False,
    login: Annotated[str | None, login_option()] = None,
) -> None:
    """Submit a batch script as sbatch or qsub does; with --keep-on-failure a failed job waits.

    Options come before SCRIPT. Those that aren't tk's are sbatch's or qsub's. What follows SCRIPT
    is the script's. With --post-mortem a Python of it stands at its exception, for F5. A kept job
    costs what it holds: tk keep shows it and lets it go.

    tk submit train.sh --epochs 3
    tk submit --keep-on-failure=2h -p gpu --gpus=1 train.sh
    tk submit --post-mortem train.sh
    tk submit --keep-on-failure --print train.sh
    tk submit --login me@login.example.org train.sh    without a session

    There is no --profile here: it is sbatch's. TK_PROFILE=NAME chooses a cluster profile.
    """
    from tunnelkit.session.submit.command_line import read_line

    line = read_line(words)
    if line.show:
        _print(line)
        return
    from tunnelkit.cli.terminal.context import run

    answer = run(_submit(line))
    if line.as_json:
        import json

        print(json.dumps(answer))
    else:
        _report(line, answer)


def _report(line: SubmitLine, answer: SubmitAnswer) -> None:
    from tunnelkit.cli.terminal.output import note, say
    from tunnelkit.text_format import duration, shown

    for text in answer["said"].splitlines():
        note(shown(text))
    where = shown(f"{answer['cluster']}:{answer['directory']}")
    say(f"job {answer['job']}: {shown(line.path)} of this computer was sent; it runs in {where}")
    if line.stand_s:
        say(
            f"  a Python of it that dies of an exception stands there for "
            f"{duration(line.stand_s)} at most: tk up --attach-job {answer['job']}, then F5"
        )
    if line.keep_s:
        say(
            f"  if it fails, it is kept for {duration(line.keep_s)} at most, "
            f"{duration(line.idle_s)} without anybody: its GPUs and CPUs stay taken and are counted"
        )
        say(f"  then: tk up --attach-job {answer['job']}, or let it go: tk keep --release")


def _print(line: SubmitLine) -> None:
    """Print what would be sent. The cluster isn't asked: its paths are as in the settings."""
    from tunnelkit.cli.terminal.context import settings
    from tunnelkit.session.submit.send import preview

    sys.stdout.buffer.write(preview(line.script(), settings(cluster__login=line.login)))
    sys.stdout.buffer.flush()


async def _submit(line: SubmitLine) -> SubmitAnswer:
    """Submit by the session's connection, else by one of this command."""
    from pathlib import Path

    from tunnelkit.cli.terminal.by_session import by_session
    from tunnelkit.cli.terminal.context import settings
    from tunnelkit.session.submit.login import own_login
    from tunnelkit.session.submit.send import submit as send

    script = line.script()  # before a login, which may ask for a code

    async def own(prompter: Prompter | None) -> SubmitAnswer:
        async with own_login(settings(cluster__login=line.login), prompter) as login:
            return await send(login, script, Path.cwd())

    other = line.login is not None
    return await by_session(lambda: line.request(os.getcwd()), own, other_cluster=other)
