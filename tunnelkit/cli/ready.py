"""`tk ready` (what F5 runs first) and `tk sync`."""

from __future__ import annotations

from typing import Annotated

import typer

from tunnelkit.cli.console import note, say


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("ready")(ready)
    app.command("sync")(sync)


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
    from tunnelkit.cli.readyview import wait_ready

    wait_ready(sync_first=sync_first, timeout_s=timeout, as_json=as_json)


def sync(
    wait: Annotated[bool, typer.Option("--wait", help="A barrier (always the case).")] = True,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait.")] = 120.0,
    allow_deletes: Annotated[
        bool, typer.Option("--allow-deletes", help="Agree to many deletions at once.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Return once every file, as saved now, is on the cluster.

    tk sync --wait && tk run python train.py
    """
    from tunnelkit.cli.common import find_session
    from tunnelkit.session.ask import ask

    report = ask(find_session(), "sync", timeout_s=timeout, allow_deletes=allow_deletes)
    if as_json:
        import json

        say(json.dumps(report))
        return
    say(
        f"in sync: {report['sent']} sent, {report['deleted']} deleted, "
        f"{report['proven']} proven on the node ({report['duration_s'] * 1000:.0f} ms)"
    )
    for path in report["kept"]:
        note(f"kept on the cluster, since it was changed there: {path}")
    if report["replaced"]:
        note(f"replaced there, former content in {report['replaced_dir']}:")
        for path in report["replaced"]:
            note(f"  {path}")
