"""`tk ready`: what F5 runs first."""

from __future__ import annotations

from typing import Annotated

from tunnelkit.cli.lazy_typer import typer


def ready(
    sync_first: Annotated[
        bool, typer.Option("--sync", help="First prove that the node has every saved file.")
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Wait until F5 will work: allocation, mirror, armed debuggee. Fails if it won't.

    tk ready --sync    the preLaunchTask that `tk vscode` writes
    """
    from tunnelkit.cli.views.ready import wait_ready

    wait_ready(sync_first=sync_first, timeout_s=timeout, as_json=as_json)
