"""`tk ready` (what F5 runs first) and `tk sync`."""

from __future__ import annotations

import time
from typing import Annotated, Any

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
    timeout: Annotated[float, typer.Option(help="Seconds to wait.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Wait until F5 will work: allocation, mirror, armed debuggee. Fails if it won't.

    tk ready --sync    the preLaunchTask that `tk vscode` writes
    """
    started = time.monotonic()
    answer = _call("ready", sync=sync_first, timeout_s=timeout)
    if as_json:
        import json

        say(json.dumps(answer))
        return
    synced = answer.get("sync")
    sent = f", {synced['sent']} files sent" if synced and synced["sent"] else ""
    say(
        f"ready: run {answer['generation']} on port {answer['port']}{sent} "
        f"({(time.monotonic() - started) * 1000:.0f} ms)"
    )


def sync(
    wait: Annotated[bool, typer.Option("--wait", help="A barrier (always the case).")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.")] = 120.0,
    allow_deletes: Annotated[
        bool, typer.Option("--allow-deletes", help="Agree to many deletions at once.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Return once every file, as saved now, is on the cluster.

    tk sync --wait && tk run python train.py
    """
    report = _call("sync", timeout_s=timeout, allow_deletes=allow_deletes)
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


def _call(method: str, **params: Any) -> dict[str, Any]:
    from tunnelkit.cli.common import find_session, run
    from tunnelkit.session import client

    async def call() -> dict[str, Any]:
        async with client.connect(find_session()) as session:
            answer: dict[str, Any] = await session.call(method, **params)
            return answer

    return run(call())
