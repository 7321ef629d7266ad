"""`tk logs`: what debug loops wrote, what tk did, or a job's own log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from tunnelkit.cli.completion.log_options import (
    follow_option,
    last_error_option,
    last_lines_option,
    log_file_option,
    log_json_option,
    rank_lines_option,
    stderr_option,
)
from tunnelkit.cli.completion.options import job_argument, login_option, profile_option
from tunnelkit.cli.lazy_typer import typer

_LINES = 100


def logs(
    job: Annotated[str | None, job_argument()] = None,
    follow: Annotated[bool, follow_option()] = False,
    own_job: Annotated[
        bool, typer.Option("--job", help="The log of the session's job, or of your newest.")
    ] = False,
    err: Annotated[bool, stderr_option()] = False,
    file: Annotated[str | None, log_file_option()] = None,
    rank: Annotated[int | None, rank_lines_option()] = None,
    last_error: Annotated[bool, last_error_option()] = False,
    session: Annotated[
        bool, typer.Option("--session", help="The session's own log, not the program's output.")
    ] = False,
    count: Annotated[int | None, last_lines_option()] = None,
    as_json: Annotated[bool, log_json_option()] = False,
    profile: Annotated[str | None, profile_option()] = None,
    login: Annotated[str | None, login_option()] = None,
) -> None:
    """Show what debug loops wrote, a job's own log, or with --session what tk did.

    A job may be any of yours. Its log is read where the scheduler wrote it, whole, by a live
    session's connection or one of its own; a cut connection loses no byte.

    tk logs -f                          what debug loops write
    tk logs 4711 -f                     a job's log, until the job ends
    tk logs 4711 --last-error
    tk logs 4711 --file out/train.log   where the scheduler has forgotten it
    tk logs --session --json | jq 'select(.kind == "error")'
    """
    if job is not None or own_job or err or file is not None:
        from tunnelkit.cli.logs.job_log import JobLogOptions, show_job_log

        _check(session=session, job=job, own_job=own_job)
        if file is not None:
            _check_file(file, named=job is not None or own_job, err=err)
        show_job_log(
            JobLogOptions(
                job, follow, err, rank, last_error, count, as_json, profile, login, file or ""
            )
        )
    else:
        _show_local(
            _local_log(session=session, as_json=as_json and not last_error),
            follow=follow,
            own=session,
            rank=rank,
            last_error=last_error,
            count=_LINES if count is None else count,
            as_json=as_json,
        )


def _check(*, session: bool, job: str | None, own_job: bool) -> None:
    from tunnelkit.errors import UsageError

    if session:
        raise UsageError("--session is tk's own log", hint="leave it out for a job's log")
    if job is not None and own_job:
        raise UsageError("--job is the session's job", hint="leave it out to name another one")


def _check_file(file: str, *, named: bool, err: bool) -> None:
    from tunnelkit.errors import UsageError

    if not named:
        raise UsageError("--file is the log of a job", hint="name it: tk logs JOB --file FILE")
    if err:
        raise UsageError("--err looks for another file", hint="leave out --err or --file")
    if not file:
        raise UsageError("--file has no name", hint="a path on the login host")


def _local_log(*, session: bool, as_json: bool) -> Path:
    """Return the path of the loops' log or of tk's own. Raises NoSessionError, UsageError."""
    from tunnelkit.cli.terminal.context import project_dir
    from tunnelkit.errors import NoSessionError, UsageError
    from tunnelkit.session.runtime.paths import session_paths

    paths = session_paths(project_dir())
    if as_json and not session:
        raise UsageError(
            "--json is for the session's events, and for a job",
            hint="tk logs --session --json, or tk logs JOB --json",
        )
    own = paths.events if as_json else paths.session_log
    path = own if session else paths.loop_log
    if not path.exists():
        raise NoSessionError(
            f"there is no log yet: {path}",
            hint="`tk logs JOB` shows a job's, `tk logs --session` tk's own"
            if not session
            else "start: tk up",
        )
    return path


def _show_local(
    path: Path,
    *,
    follow: bool,
    own: bool,
    rank: int | None,
    last_error: bool,
    count: int,
    as_json: bool,
) -> None:
    from tunnelkit.cli.logs.local_log import LocalLog

    if last_error:
        from tunnelkit.cli.logs.last_error import show_last_error
        from tunnelkit.diagnosis.ended.log.streams import LONGEST_TEXT

        show_last_error(LocalLog(path).last_bytes(LONGEST_TEXT), f"`{path}`", as_json=as_json)
        return
    LocalLog(path).show(count, _Printer(own=own, rank=rank).show, follow=follow)


class _Printer:
    """Prints parts of a log of this machine.

    own: tk's log; it quotes the cluster, so control characters are shown as escapes. The
    program's output may have colours. rank: only its lines.
    """

    def __init__(self, *, own: bool, rank: int | None) -> None:
        from tunnelkit.cli.logs.log_text import RankLines

        self._own = own and sys.stdout.isatty()
        self._rank = None if rank is None else RankLines(rank)

    def show(self, data: bytes) -> None:
        """Print a part."""
        if self._rank is not None:
            data = self._rank.feed(data)
        if self._own:
            from tunnelkit.cli.terminal.output import safe

            data = safe(data.decode("utf-8", "replace")).encode()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
