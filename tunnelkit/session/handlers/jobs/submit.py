"""`tk submit` and `tk keep` through a session: by its link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tunnelkit.model import Completed
from tunnelkit.mux.rpc import Handler
from tunnelkit.scheduler.base import Command
from tunnelkit.session.runtime.control_answers import KeptJob, SubmitAnswer
from tunnelkit.session.runtime.control_calls import Keep, Submit
from tunnelkit.session.session import Session

if TYPE_CHECKING:
    from tunnelkit.session.submit.login import Login


def submit_handlers(session: Session) -> list[tuple[str, Handler]]:
    """Return the handlers of both commands."""

    async def sends(request: Submit) -> SubmitAnswer:
        from tunnelkit.session.submit.send import UserScript, submit

        script = UserScript(
            _words(request.name),
            request.text.encode("latin-1"),
            [_words(word) for word in request.options],
            [_words(word) for word in request.args],
            request.keep_s,
            request.idle_s,
            request.most,
            request.stand_s,
        )
        return await submit(login_of_session(session), script, Path(request.here))

    async def keeps(request: Keep) -> list[KeptJob]:
        from tunnelkit.session.submit.kept import change
        from tunnelkit.session.submit.watch import noted_kept_jobs

        if request.action == "list":
            return await noted_kept_jobs(login_of_session(session))
        for_s = request.for_s if request.action == "extend" else None
        changed = await change(login_of_session(session), request.job, for_s)
        await noted_kept_jobs(login_of_session(session))
        return [changed]

    return [Submit.served_by(sends), Keep.served_by(keeps)]


def _words(text: str) -> str:
    """Return a word of bytes as the link takes it."""
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


def login_of_session(session: Session) -> Login:
    """Return the session's login host. Raises SchedulerError without batch scripts there."""
    from tunnelkit.session.submit.login import LIMIT_S, login_of

    job = session.cluster.job

    async def run(command: Command) -> Completed:
        return await session.link.run(command.argv, stdin=command.stdin, timeout_s=LIMIT_S)

    scheduler = None if job is None else job.scheduler
    return login_of(run, session.link.name, scheduler, session.launch.settings)
