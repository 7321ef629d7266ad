"""`tk status` and `tk logs`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from tunnelkit.cli.console import paint, say


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("status")(status)
    app.command("logs")(logs)


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """What is up: link, job, mirror, debug loops, forwards.

    tk status
    tk status --json | jq .job.time_left_s
    """
    from tunnelkit.cli.common import find_session, run

    answer = run(_ask(find_session()))
    if as_json:
        import json

        say(json.dumps(answer, indent=2))
    else:
        say("\n".join(lines(answer)))


async def _ask(paths: Any) -> dict[str, Any]:
    from tunnelkit.session import client

    async with client.connect(paths) as session:
        answer: dict[str, Any] = await session.call("status")
        return answer


def lines(status: dict[str, Any]) -> list[str]:
    """The status as lines of text."""
    colour = {"ready": "green", "ended": "red", "failed": "red"}.get(status["state"], "yellow")
    state = paint(status["state"], colour)
    out = [f"session  {state} {status['detail']}".rstrip(), f"project  {status['project']}"]
    out.append(f"login    {status['login']}")
    job = status["job"]
    if job:
        left = job["time_left_s"]
        time_left = f", {hours(left)} left" if left is not None else ""
        out.append(f"job      {job['id']} on {', '.join(job['nodes']) or '-'}{time_left}")
    if status["agent"]:
        agent = status["agent"]
        gpus = agent.get("cuda_visible_devices")
        out.append(
            f"node     {agent['node']} by {status['route'] or 'ssh'}"
            + (f", GPUs {gpus}" if gpus is not None else "")
        )
    mirror = status["mirror"]
    if mirror:
        out.append(f"mirror   {mirror['text']}; {mirror['files']} files -> {mirror['remote']}")
    out += [_loop_line(loop) for loop in status["loops"]]
    if not status["loops"]:
        out.append(f"loop     none; F5 port 127.0.0.1:{status['debug_port']}")
    out += [f"forward  {one['forward']} by {one['route']}" for one in status["forwards"]]
    return out


def _loop_line(loop: dict[str, Any]) -> str:
    editor = f", {loop['editor']} attached" if loop["editor"] else ""
    command = loop["command"]
    return (
        f"loop     #{loop['generation']} {loop['state']}{editor}, "
        f"F5 port 127.0.0.1:{loop['port']}: {command}"
    )


def hours(seconds: int) -> str:
    """Seconds as h:mm:ss."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def logs(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as lines come.")] = False,
    session: Annotated[
        bool, typer.Option("--session", help="The session's own log, not the program's output.")
    ] = False,
    count: Annotated[int, typer.Option("-n", "--lines", help="How many last lines.")] = 100,
) -> None:
    """What debug loops wrote (or, with --session, what tk did).

    tk logs -f
    tk logs --session -n 20
    """
    from tunnelkit.cli.common import project_dir
    from tunnelkit.errors import NoSessionError
    from tunnelkit.session.paths import session_paths

    paths = session_paths(project_dir())
    path = paths.session_log if session else paths.loop_log
    if not path.exists():
        raise NoSessionError(
            f"there is no log yet: {path}",
            hint="`tk logs --session` shows tk's own" if not session else "start: tk up",
        )
    with open(path, "rb") as file:
        sys.stdout.buffer.write(b"".join(tail(file, count)))
        sys.stdout.buffer.flush()
        if follow:
            _follow(file)


def tail(file: Any, count: int) -> list[bytes]:
    """The last `count` lines of a binary file, which is then at its end."""
    from collections import deque

    return list(deque(file, maxlen=max(0, count)))


def _follow(file: Any) -> None:
    import time

    while True:
        data = file.read()
        if data:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            time.sleep(0.1)
