"""`tk status`."""

from __future__ import annotations

from typing import Annotated

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
