"""`tk status` and `tk logs`."""

from __future__ import annotations

import sys
from typing import Annotated, BinaryIO

from tunnelkit.cli.lazy_typer import typer


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Show what is up: link, job, mirror, debug loops, forwards.

    tk status
    tk status --json | jq .job.time_left_s
    """
    from tunnelkit.cli.views.status import show_status

    show_status(as_json=as_json)


def logs(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as lines come.")] = False,
    session: Annotated[
        bool, typer.Option("--session", help="The session's own log, not the program's output.")
    ] = False,
    count: Annotated[
        int, typer.Option("-n", "--lines", metavar="N", help="How many last lines.")
    ] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --session: its events, one JSON object a line.")
    ] = False,
) -> None:
    """Show what debug loops wrote (or, with --session, what tk did).

    tk logs -f
    tk logs --session -n 20
    tk logs --session --json | jq 'select(.kind == "error")'
    """
    from tunnelkit.cli.terminal.context import project_dir
    from tunnelkit.errors import NoSessionError, UsageError
    from tunnelkit.session.runtime.paths import session_paths

    paths = session_paths(project_dir())
    if as_json and not session:
        raise UsageError("--json is for the session's events", hint="tk logs --session --json")
    own = paths.events if as_json else paths.session_log
    path = own if session else paths.loop_log
    if not path.exists():
        raise NoSessionError(
            f"there is no log yet: {path}",
            hint="`tk logs --session` shows tk's own" if not session else "start: tk up",
        )
    with open(path, "rb") as file:
        _print(b"".join(tail(file, count)), own=session)
        if follow:
            _follow(file, own=session)


def tail(file: BinaryIO, count: int) -> list[bytes]:
    """Return the last `count` lines of a binary file, which is then at its end."""
    from collections import deque

    return list(deque(file, maxlen=max(0, count)))


def _print(data: bytes, *, own: bool) -> None:
    """Print a part of a log.

    own: tk's log; it quotes the cluster, so control characters are shown as escapes. The
    program's output may have colours.
    """
    if own and sys.stdout.isatty():
        from tunnelkit.cli.terminal.output import safe

        data = safe(data.decode("utf-8", "replace")).encode()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _follow(file: BinaryIO, *, own: bool) -> None:
    import time

    while True:
        data = file.read()
        if data:
            _print(data, own=own)
        else:
            time.sleep(0.1)
