"""`tk sync`: the barrier, and questions and orders to the mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion import options
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import note, report, say
from tunnelkit.text_format import shown

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import SyncAnswer


def sync(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="With --ours or --theirs: the conflicts there."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Fail (exit code 4) where no compute node can prove it.")
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait.")] = 120.0,
    allow_deletes: Annotated[bool, options.confirm_deletes_option()] = False,
    ours: Annotated[
        bool, typer.Option("--ours", help="Conflicts: keep the laptop's version.")
    ] = False,
    theirs: Annotated[
        bool, typer.Option("--theirs", help="Conflicts: take the cluster's version.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Say why PATH is or isn't mirrored, and its state."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show each batch as it is sent.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Return once every file, as saved now, is proven on the node.

    Once the allocation is over there is only the login host: then it says so, and with --wait
    it fails.

    tk sync --wait && tk run python train.py
    tk sync --explain data/big.bin    which rule leaves it out
    tk sync --watch                   until Ctrl-C
    tk sync --ours train.py           changed on both sides: the laptop's wins
    tk sync --theirs train.py         or the cluster's

    The version that gives way is kept in .tk-replaced on its side.
    """
    if ours or theirs or paths:
        from tunnelkit.cli.views.sync_resolve import settle

        settle(paths or [], ours=ours, theirs=theirs, timeout_s=timeout, as_json=as_json)
        return
    if explain is not None:
        from tunnelkit.cli.views.sync_explain import show_explanation

        show_explanation(explain, as_json=as_json)
        return
    if watch:
        from tunnelkit.cli.views.sync_watch import show_batches

        show_batches(as_json=as_json)
        return
    _run_barrier(timeout, allow_deletes=allow_deletes, proof=wait, as_json=as_json)


def _run_barrier(timeout_s: float, *, allow_deletes: bool, proof: bool, as_json: bool) -> None:
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.session.runtime.blocking_client import ask
    from tunnelkit.session.runtime.control_calls import Sync

    request = Sync(timeout_s=timeout_s, allow_deletes=allow_deletes, proof=proof)
    report(ask(find_session(), request), show_report, as_json=as_json)


def _done(answer: SyncAnswer) -> str:
    """Return what was done in words; empty if nothing was."""
    counts = {"sent": answer["sent"], "deleted": answer["deleted"]}
    parts = [f"{number} {what}" for what, number in counts.items() if number]
    return f": {', '.join(parts)}" if parts else ""


def show_report(answer: SyncAnswer) -> None:
    """Print what a barrier did."""
    done = _done(answer)
    took = f"({answer['duration_s'] * 1000:.0f} ms)"
    if answer["unproven"] is None:
        say(f"in sync (proven on the node){done} {took}")
    else:
        say(f"on the login host only{done} {took}")
        note(f"proven on no compute node: {shown(answer['unproven'])}")
    for text in answer["warnings"]:
        note(shown(text))
    for path in answer["kept"]:
        note(f"kept on the cluster, since it was changed there: {shown(path)}")
    if answer["replaced"]:
        note(f"replaced there, former content in {shown(answer['replaced_dir'] or '')}:")
        for path in answer["replaced"]:
            note(f"  {shown(path)}")
