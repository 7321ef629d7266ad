"""`tk loop`: a program under the restart loop, a fresh debuggee for every F5."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion import options
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import note

if TYPE_CHECKING:
    from tunnelkit.cli.views.loop import LoopView
    from tunnelkit.config.schema import Settings
    from tunnelkit.session.runtime.control_calls import LoopAdopt, LoopStream
    from tunnelkit.session.runtime.control_client import SessionClient
    from tunnelkit.session.runtime.paths import SessionPaths

_HELP = """Run a command again and again: every F5 gets a fresh debuggee.

    tk loop python -m debugpy --wait-for-client 2.py
    tk loop python train.py --epochs 1
    tk loop --preload torch,numpy python train.py
    tk loop --reload flask --app web run
    tk loop torchrun --nproc-per-node 4 train.py
    tk loop --rank 0,2 srun -n 8 python train.py
    tk loop --all-pods python train.py
    tk loop python -m ptvsd --host 0.0.0.0 --port 40056 --wait 2.py

With a session the command runs on its node; on a node itself (no session) it
runs right there. After `tk up -f FILE` it may be left out: it is the manifest's
own. Ctrl-C restarts, twice quits.

The program has no stdin and no terminal: input() finds its end at once. One that
asks runs with `tk run`, and `tk attach` brings the debugger into it.
"""
#: Limit of the wait for the node to end a loop; then the user may leave.
_STOP_S = 2.0


def loop(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="As you would type it there.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Editor port, if not the session's (40056).")
    ] = None,
    preload: Annotated[str | None, options.preload_option()] = None,
    standby: Annotated[bool | None, options.standby_option()] = None,
    rank: Annotated[str | None, options.rank_option()] = None,
    post_mortem: Annotated[bool | None, options.post_mortem_option()] = None,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Restart when files have changed, once for each burst."),
    ] = False,
    all_pods: Annotated[bool | None, options.all_pods_option()] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Run here, even if a session is up.")
    ] = False,
) -> None:
    """Run a loop; the help text is `_HELP`."""
    from tunnelkit.cli.terminal.context import run, settings
    from tunnelkit.debug.loop_command import understand
    from tunnelkit.debug.rank_set import parse_ranks
    from tunnelkit.model import check_port
    from tunnelkit.session.runtime.control_calls import LoopStream

    is_own = not command
    if not command:
        # What each of the pods would have run.
        command, all_pods = _own_command(local=local), all_pods is not False
    only = parse_ranks(rank) if rank is not None else None
    understand(command, ranks=rank is not None or bool(all_pods))
    if port is not None:
        check_port(port)
    wanted = settings(
        debug__port=port,
        debug__preload=preload,
        debug__standby=standby,
        debug__post_mortem=post_mortem,
    )
    paths = None if local else _session_or_none()
    stream = LoopStream(
        words=command,
        here=os.getcwd(),
        port=port,
        standby=standby,
        preload=None if preload is None else list(wanted.debug.preload),
        post_mortem=post_mortem,
        reload=reload,
        ranks=rank is not None,
        only=None if only is None else list(only),
        all_pods=all_pods,
        expands=is_own,
    )
    sys.exit(run(_in_session(paths, stream) if paths is not None else _here(stream, wanted)))


loop.__doc__ = _HELP


async def _here(stream: LoopStream, wanted: Settings) -> int:
    """Run the loop on this machine. Raises UsageError for what only a session can do."""
    from tunnelkit.errors import UsageError
    from tunnelkit.session.local_loop import run_local

    if stream.reload:
        raise UsageError(
            "--reload needs a session, which sees the files change",
            hint="tk up; or leave it out: Ctrl-C restarts the program",
        )
    if stream.all_pods:
        raise UsageError("--all-pods needs a session", hint="tk up; or leave it out")
    return await run_local(stream, wanted, _view_factory)


def _own_command(*, local: bool) -> list[str]:
    """Return the command of the manifest that the session has made. Raises UsageError."""
    from tunnelkit.cli.terminal.context import find_session, run
    from tunnelkit.errors import NoSessionError, UsageError
    from tunnelkit.session.runtime.launch_spec import LaunchSpec

    made = None
    if not local:
        with suppress(NoSessionError):
            made = LaunchSpec.load(find_session().launch).settings
    if made is None or made.allocation.manifest is None:
        raise UsageError("missing argument 'COMMAND'", hint="such as tk loop python train.py")
    from tunnelkit.scheduler.kube.manifest import Manifest
    from tunnelkit.session.job.pod_templates import template_of

    template = run(template_of(made))
    words = template.own_command if isinstance(template, Manifest) else []
    if not words:
        raise UsageError(
            f"{Path(made.allocation.manifest).name} names no command: its image does",
            hint="say it here: tk loop python train.py",
        )
    note(f"[tk] the manifest's own command: {shlex.join(words)}")
    return words


def _view_factory() -> LoopView:
    from tunnelkit.cli.views.loop import LoopView

    return LoopView()


def _session_or_none() -> SessionPaths | None:
    """Return the session's paths; None on a node, or where no cluster is configured."""
    from tunnelkit.cli.terminal.context import find_session, settings
    from tunnelkit.errors import NoSessionError

    try:
        return find_session()
    except NoSessionError:
        inside_job = any(name in os.environ for name in ("SLURM_JOB_ID", "PBS_JOBID"))
        if inside_job:
            return None
        cluster = settings().cluster
        if cluster.login is None and not cluster.is_kubernetes:
            note(
                "[tk] no cluster is configured here (`tk init` does that): running on this machine"
            )
            return None
        raise


async def _in_session(paths: SessionPaths, stream: LoopStream | LoopAdopt) -> int:
    from tunnelkit.errors import ExitCode
    from tunnelkit.session.runtime.control_calls import LoopAdopt, LoopStream

    view, first = _view_factory(), stream
    while True:
        loop_id = await _watch(paths, stream, view)
        if view.starts_again and isinstance(first, LoopStream) and not view.quit.is_set():
            nodes = len(view.where.get("nodes") or ())
            view.begin_again()
            stream = LoopStream.parse({**first.to_json(), "waits": True, "nodes": nodes})
            continue
        if loop_id is None or view.quit.is_set():
            return int(ExitCode.ALLOCATION) if view.lost else 0
        note("[tk] the session is gone; the program lives on. Waiting for `tk up` ...")
        code = await _session_again(paths, view)
        if code is not None:
            return code
        stream = LoopAdopt(adopt=loop_id)


async def _watch(paths: SessionPaths, stream: LoopStream | LoopAdopt, view: LoopView) -> int | None:
    """Show the loop until it ends (None) or the session is lost (the loop's id)."""
    from tunnelkit.cli.views.waiting import Waiting
    from tunnelkit.errors import NoSessionError, TunnelkitError
    from tunnelkit.mux.loop_records import RecordReader
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.control_calls import LoopRestart

    waiting, watching = Waiting(), ExitStack()
    try:
        async with control_client.connect(paths) as session:
            channel = session.open(stream)
            view.mind_signals(lambda: session.call(LoopRestart(loop=view.where.get("id"))))
            reader = RecordReader()
            reading = asyncio.create_task(channel.read())
            quitting = asyncio.create_task(view.quit.wait())
            try:
                watching.enter_context(waiting.watching(session))
                while True:
                    await asyncio.wait([reading, quitting], return_when=asyncio.FIRST_COMPLETED)
                    if quitting.done():
                        if "id" in view.where:
                            await _stop(session, view)
                        return None
                    data = reading.result()
                    if not data:
                        break
                    waiting.heard()
                    for record in reader.feed(data):
                        view.show(record)
                    reading = asyncio.create_task(channel.read())
            finally:
                watching.close()
                reading.cancel()
                quitting.cancel()
            detail = await channel.closed() or {}
    except NoSessionError:
        return int(view.where["id"]) if "id" in view.where else None
    failure = detail.get("failure")
    if isinstance(failure, dict):
        raise TunnelkitError.from_json(failure)
    if "error" in detail and "id" in view.where:
        return int(view.where["id"])
    return None


async def _stop(session: SessionClient, view: LoopView) -> None:
    """End the loop.

    Where the node does not answer, as during a cut, Ctrl-C leaves that to the session; a
    terminal that has hung up does so at once.
    """
    from tunnelkit.session.runtime.control_calls import LoopStop

    stopping = asyncio.ensure_future(session.call(LoopStop(loop=view.where["id"])))
    await asyncio.wait([stopping], timeout=_STOP_S)
    if not stopping.done() and not view.hung_up:
        note("[tk] waiting for the node to end it (Ctrl-C: leave that to the session)")
        leaving = asyncio.create_task(view.leave.wait())
        await asyncio.wait([stopping, leaving], return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
    if stopping.done():
        stopping.result()
        return
    stopping.cancel()
    note("[tk] the session ends the loop once the node answers")


async def _session_again(paths: SessionPaths, view: LoopView) -> int | None:
    """Wait for a successor of a killed session; return an exit code to wait no longer."""
    from tunnelkit.session.runtime.blocking_client import is_alive

    while not is_alive(paths):
        if view.quit.is_set():
            return 0
        if not paths.launch.exists():
            # `tk down` has ended what the killed session left.
            return 0
        await asyncio.sleep(0.2)
    return None
