"""`tk keep`: the failed jobs that are kept, until when, at what cost."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion import sources
from tunnelkit.cli.completion.options import login_option, profile_option
from tunnelkit.cli.lazy_typer import typer

if TYPE_CHECKING:
    from tunnelkit.link.base import Prompter
    from tunnelkit.session.runtime.control_answers import KeptJob, StandingProgram


def keep(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="A kept job; without it the only one.",
            autocompletion=sources.jobs,
        ),
    ] = None,
    for_time: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Keep it so long from now: 30m, 1h."),
    ] = None,
    release: Annotated[
        bool, typer.Option("--release", help="Let it go: it ends with its script's exit code.")
    ] = False,
    list_all: Annotated[
        bool, typer.Option("--list", help="Show all that is kept; the default.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the jobs as JSON.")] = False,
    profile: Annotated[str | None, profile_option()] = None,
    login: Annotated[str | None, login_option()] = None,
) -> None:
    """Show which failed jobs are kept, until when and at what cost; keep one longer, or let it go.

    tk keep                   what is kept
    tk keep 4711 --for 30m    30 minutes from now, within its time limit
    tk keep --release         let the only one go
    """
    from tunnelkit.cli.terminal.context import run
    from tunnelkit.errors import UsageError
    from tunnelkit.session.submit.command_line import seconds

    if release + list_all + (for_time is not None) > 1:
        raise UsageError("--for, --release and --list exclude one another", hint="give one of them")
    for_s = None if for_time is None else seconds(for_time, "--for")
    action = "release" if release else "list" if for_s is None else "extend"
    jobs = run(_ask(action, job, for_s, profile, login))
    if action == "list" and job is not None:
        from tunnelkit.session.submit.kept import is_named

        jobs = [one for one in jobs if is_named(one, job)]
    if as_json:
        import json

        print(json.dumps(jobs, indent=2))
    else:
        _show(action, jobs, job)


async def _ask(
    action: str, job: str | None, for_s: float | None, profile: str | None, login: str | None
) -> list[KeptJob]:
    """Ask by the session's connection, else by one of this command."""
    from tunnelkit.cli.terminal.by_session import by_session
    from tunnelkit.cli.terminal.context import settings
    from tunnelkit.session.runtime.control_calls import Keep
    from tunnelkit.session.submit.kept import change
    from tunnelkit.session.submit.login import own_login
    from tunnelkit.session.submit.watch import noted_kept_jobs

    async def own(prompter: Prompter | None) -> list[KeptJob]:
        chosen = settings(profile=profile, cluster__login=login)
        async with own_login(chosen, prompter) as far:
            if action == "list":
                return await noted_kept_jobs(far)
            changed = await change(far, job, for_s)
            await noted_kept_jobs(far)
            return [changed]

    other = profile is not None or login is not None
    return await by_session(
        lambda: Keep(action=action, job=job, for_s=for_s), own, other_cluster=other
    )


def _show(action: str, jobs: list[KeptJob], job: str | None) -> None:
    from tunnelkit.cli.terminal.output import say

    if not jobs:
        say("no job of yours is kept" if job is None else f"job {job} is not kept")
    for one in jobs:
        if action == "release":
            say(f"job {one['job']} was let go{_cost_so_far(one)}")
        else:
            for line in lines(one):
                say(line)


def lines(one: KeptJob) -> Iterator[str]:
    """Return a kept job as lines for people."""
    import time

    from tunnelkit.text_format import duration, shown

    name = f" ({shown(one['name'])})" if one["name"] else ""
    array = f", {shown(one['array'])} of its array" if one["array"] else ""
    if one["until_s"] is None:
        state = shown(one["comment"] or "its state can not be read")
        yield f"job {one['job']}{name}{array}: {state}"
        return
    left_s = max(0.0, one["until_s"] - time.time())
    until = time.strftime("%H:%M", time.localtime(one["until_s"]))
    node = f" on {shown(one['node'])}" if one["node"] else ""
    if one["standing"]:
        yield f"job {one['job']}{name}{array} is kept{node} until {until}"
        yield from _programs(one["standing"])
    else:
        failed = f"failed with {_end(one)}"
        yield f"job {one['job']}{name}{array} {failed}; it is kept{node} until {until}"
    who = "somebody is attached" if one["attached"] else "nobody is attached"
    idle = f"; without anybody it goes after {duration(one['idle_s'])}" if one["idle_s"] else ""
    yield f"  left     {duration(left_s)}; {who}{idle}"
    if _rate(one):
        by_then = _taken(one, one["until_s"])
        yield f"  cost     {_taken(one, time.time())} so far, {by_then} by then"
    job = shlex.quote(one["array"] or one["job"])
    go = f"or let it go: tk keep {job} --release"
    enter = ", then F5" if one["standing"] else ""
    yield f"  next     tk up --attach-job {job}{enter}, {go}"


def _programs(standing: list[StandingProgram]) -> Iterator[str]:
    """Return the programs that stand at an exception, the first one first."""
    from tunnelkit.text_format import shown

    for one in standing:
        rank = "" if one["rank"] is None else f"rank {one['rank']:.0f}, "
        pid = "" if one["pid"] is None else f"pid {one['pid']:.0f} on "
        where = f" at {shown(one['where'])}" if one["where"] else ""
        place = f"{rank}{pid}{shown(one['node'] or '?')}"
        yield f"  stands   {shown(one['error'] or 'an exception')}{where} ({place})"


def _end(one: KeptJob) -> str:
    if one["signal"]:
        import signal

        try:
            return signal.Signals(int(one["signal"])).name
        except ValueError:
            return f"signal {one['signal']:.0f}"
    return f"exit code {one['code'] or 0:.0f}"


def _rate(one: KeptJob) -> tuple[float, str] | None:
    """Return what an hour costs."""
    if one["gpus"]:
        return one["gpus"], "GPU-hours"
    return (one["cpus"], "CPU-hours") if one["cpus"] else None


def _taken(one: KeptJob, until_s: float) -> str:
    rate = _rate(one)
    if rate is None or one["since_s"] is None:
        return ""
    return f"{rate[0] * max(0.0, until_s - one['since_s']) / 3600:.2g} {rate[1]}"


def _cost_so_far(one: KeptJob) -> str:
    import time

    text = _taken(one, time.time())
    return f"; being kept took {text}" if text else ""
