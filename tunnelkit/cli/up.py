"""`tk up` and `tk down`."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Annotated, Any

import typer

from tunnelkit.cli.console import StatusLine, note, paint, say

_UP_HELP = """Get the node: connect, allocate, mirror, forward. Returns when all of it is ready.

    tk up                          whichever node the scheduler gives
    tk up node4 --gpus 1 --cpus 2  that node
    tk up --time 2:00:00 --partition gpu

Called again, it tells the state of what is up, or takes over what a killed
session left behind.
"""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("up", help=_UP_HELP)(up)
    app.command("down")(down)


def up(
    node: Annotated[str | None, typer.Argument(help="The node to ask for.")] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs.")] = None,
    cpus: Annotated[int | None, typer.Option(help="CPUs.")] = None,
    mem: Annotated[str | None, typer.Option(help="Memory, such as 16G.")] = None,
    time: Annotated[str | None, typer.Option(help="Time limit, such as 2:00:00.")] = None,
    partition: Annotated[str | None, typer.Option(help="Partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Account.")] = None,
    qos: Annotated[str | None, typer.Option(help="QOS.")] = None,
    constraint: Annotated[str | None, typer.Option(help="Node features.")] = None,
    profile: Annotated[str | None, typer.Option(help="Cluster profile.")] = None,
    login: Annotated[str | None, typer.Option(help="Login host.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="auto, slurm or none.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
) -> None:
    from tunnelkit.cli.common import run, settings
    from tunnelkit.model import check_host
    from tunnelkit.session.launch import Launch

    if node is not None:
        check_host(node)
    wanted = settings(
        profile=profile,
        cluster__login=login,
        cluster__scheduler=scheduler,
        allocation__gpus=gpus,
        allocation__cpus=cpus,
        allocation__mem=mem,
        allocation__time=time,
        allocation__partition=partition,
        allocation__account=account,
        allocation__qos=qos,
        allocation__constraint=constraint,
    )
    wanted.require_login()
    status = run(_up(Launch(wanted, node)))
    if as_json:
        import json

        say(json.dumps(status, indent=2))
    else:
        say(ready_line(status))


def ready_line(status: dict[str, Any]) -> str:
    """One line that says what is up."""
    job = status.get("job")
    where = status.get("node") or status.get("login")
    parts = [paint("ready", "green"), f"on {where}"]
    if job:
        parts.append(f"(job {job['id']})")
    return " ".join(parts) + f"; F5 goes to 127.0.0.1:{status['debug_port']}"


async def _up(launch: Any) -> dict[str, Any]:
    from tunnelkit.errors import UsageError
    from tunnelkit.session import client
    from tunnelkit.session.paths import session_paths

    paths = session_paths(launch.settings.project_dir)
    if client.is_alive(paths):
        status = await _current(paths)
        if status["state"] in ("ended", "failed"):
            await _stop(paths, keep=status["state"] == "ended")
        elif launch.node not in (None, status["node"], status["wanted_node"]):
            raise UsageError(
                f"this project's session is on {status['node'] or status['wanted_node']}",
                hint=f"tk down first, then tk up {launch.node}",
            )
    if not client.is_alive(paths):
        client.start_daemon(_with_last_node(launch, paths), paths)
    return await _Follower(paths).follow()


def _with_last_node(launch: Any, paths: Any) -> Any:
    """After a killed session (a clean end removes its launch file) the node is known."""
    from dataclasses import replace

    from tunnelkit.errors import NoSessionError
    from tunnelkit.session.launch import Launch

    if launch.node is not None:
        return launch
    try:
        return replace(launch, node=Launch.load(paths.launch).node)
    except NoSessionError:
        return launch


async def _current(paths: Any) -> dict[str, Any]:
    from tunnelkit.session import client

    async with client.connect(paths) as session:
        status: dict[str, Any] = await session.call("status")
        return status


class _Follower:
    """Shows a session's way up, answers its questions, and minds Ctrl-C."""

    def __init__(self, paths: Any) -> None:
        self._paths = paths
        self._line = StatusLine()

    async def follow(self) -> dict[str, Any]:
        from tunnelkit.session import client

        notices = {"say": self._say, "state": self._state, "prompt": self._prompt}
        async with client.connect(self._paths, notices=notices) as session:
            status = await session.call("follow")
            await self._state(status)
            settled = asyncio.create_task(session.call("settled"))
            interrupted = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
            try:
                while not settled.done():
                    stop = asyncio.create_task(interrupted.wait())
                    await asyncio.wait([settled, stop], return_when=asyncio.FIRST_COMPLETED)
                    stop.cancel()
                    if interrupted.is_set() and not settled.done():
                        interrupted.clear()
                        await self._on_interrupt(session)
                self._line.clear()
                result: dict[str, Any] = await settled
                return result
            finally:
                asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
                settled.cancel()
                await asyncio.gather(settled, return_exceptions=True)
                self._line.clear()

    async def _say(self, params: dict[str, Any]) -> None:
        self._line.clear()
        note(f"  {params['text']}")

    async def _state(self, params: dict[str, Any]) -> None:
        if params["state"] not in ("ready", "failed"):
            self._line.update(f"  {params['state']} {params.get('detail') or ''}".rstrip())

    async def _prompt(self, params: dict[str, Any]) -> str | None:
        self._line.clear()
        if not sys.stdin.isatty():
            return None
        return await asyncio.to_thread(ask, str(params["text"]), bool(params["echo"]))

    async def _on_interrupt(self, session: Any) -> None:
        """Ctrl-C while waiting: cancel the job, or leave it queued, or go on waiting."""
        self._line.clear()
        answer: str | None = "c"
        if sys.stdin.isatty():
            answer = await asyncio.to_thread(
                ask, "\n[c]ancel the job, [l]eave it queued, or [w]ait on? ", True
            )
        choice = (answer or "c").strip().lower()[:1]
        if choice == "w":
            return
        if choice == "l":
            note("left as it is; `tk up` goes on, `tk status` tells, `tk down` cancels")
        else:
            await session.call("down")
            await _gone(self._paths)
            note("cancelled")
        raise KeyboardInterrupt


def ask(prompt: str, echo: bool) -> str | None:
    """Ask at the terminal."""
    import getpass

    try:
        return input(prompt) if echo else getpass.getpass(prompt)
    except (EOFError, KeyboardInterrupt):
        return None


def down(
    keep: Annotated[
        bool, typer.Option("--keep", help="End only this side; the job lives on.")
    ] = False,
) -> None:
    """End the session: loops, forwards, mirror, tunnels, and the job.

    tk down         everything
    tk down --keep  the laptop's side only; `tk up` takes the job over again
    """
    from tunnelkit.cli.common import project_dir, run
    from tunnelkit.errors import NoSessionError
    from tunnelkit.session import client
    from tunnelkit.session.launch import Launch
    from tunnelkit.session.paths import session_paths
    from tunnelkit.session.sweep import sweep

    paths = session_paths(project_dir())
    if client.is_alive(paths):
        run(_stop(paths, keep=keep))
        say("down" if not keep else "down; the job lives on")
        return
    try:
        left = Launch.load(paths.launch)
    except NoSessionError:
        raise client.no_session() from None
    say(run(sweep(left, paths)))


async def _stop(paths: Any, *, keep: bool) -> None:
    from tunnelkit.session import client

    async with client.connect(paths) as session:
        await session.call("down", keep=keep)
    await _gone(paths)


async def _gone(paths: Any) -> None:
    """Wait until the daemon has ended: its lock is free."""
    from tunnelkit.session.paths import wait_unlocked

    await wait_unlocked(paths, timeout_s=60.0)
