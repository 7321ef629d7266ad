"""The work of `tk down`."""

from __future__ import annotations

import shlex

from tunnelkit.cli.terminal.context import project_dir, run, settings
from tunnelkit.cli.terminal.output import say
from tunnelkit.errors import AllocationError, NoSessionError
from tunnelkit.model import job_words
from tunnelkit.session.runtime.blocking_client import is_alive, no_session
from tunnelkit.session.runtime.control_calls import Down
from tunnelkit.session.runtime.paths import (
    SessionPaths,
    live_sessions,
    session_paths,
    wait_unlocked,
)


def end_session(*, keep: bool = False) -> None:
    """End the session, or the leftovers of a killed one. keep: the job stays.

    Raises TunnelkitError.
    """
    paths = session_paths(project_dir())
    if is_alive(paths):
        given_back = run(stop(paths, keep=keep))
        if not keep and paths.launch.exists():
            raise AllocationError(
                "the session has ended, but its job may still be there",
                cause="the cluster did not confirm its end in time",
                hint="`tk down` once more",
            )
        if keep:
            say("down; the job lives on")
        else:
            say(f"down; {given_back}" if given_back else "down")
        return
    if keep:
        raise no_session()
    _sweep(paths)


def _sweep(paths: SessionPaths) -> None:
    from tunnelkit.session.runtime.launch_spec import LeftSession

    left = LeftSession.load(paths.launch)
    if left is None:
        _end_lost()
        return
    from tunnelkit.cli.terminal.tty import answer_prompt
    from tunnelkit.session.cleanup import sweep

    say(run(sweep(left.launch(settings), paths, answer_prompt)))


def _end_lost() -> None:
    """End the session whose project's directory is gone: no other `tk down` could name it.

    Raises NoSessionError, naming the directories of the sessions that are up."""
    from pathlib import Path

    from tunnelkit.session.runtime.launch_spec import project_of

    up = [(project_of(paths) or "", paths) for paths in live_sessions() if is_alive(paths)]
    lost = [one for one in up if one[0] and not Path(one[0]).exists()]
    if len(lost) != 1:
        places = sorted({project for project, _ in up if project})
        if not places:
            raise no_session()
        raise NoSessionError(
            "no session is up for this project",
            cause=f"one is up for {' and for '.join(places)}",
            hint=f"cd {shlex.quote(places[0])} && tk down",
        )
    [(project, paths)] = lost
    given_back = run(stop(paths, keep=False))
    what = f"the session of {project}, which is gone, is ended"
    say(f"{what}; {given_back}" if given_back else what)


async def stop(paths: SessionPaths, *, keep: bool) -> str | None:
    """End the session; return in words what became of its job, if there is one."""
    from tunnelkit.session.runtime import control_client

    async with control_client.connect(paths) as session:
        answer = await session.call(Down(keep=keep))
    await wait_unlocked(paths, timeout_s=60.0)
    if answer["goes_on"]:
        return f"{job_words(answer['goes_on'])} is yours and goes on"
    return f"{job_words(answer['job'])} cancelled" if answer["job"] else None
