"""`tk simulate`'s check through a session: by its link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tunnelkit.model import Completed
from tunnelkit.mux.rpc import Handler
from tunnelkit.scheduler.base import Command
from tunnelkit.session.session import Session
from tunnelkit.session.simulate.call import CheckScript

if TYPE_CHECKING:
    from tunnelkit.simulate.finding import CheckAnswer


def check_handler(session: Session) -> tuple[str, Handler]:
    """Return the handler."""

    async def checks(request: CheckScript) -> CheckAnswer:
        from tunnelkit.scheduler.script_options import Wanted
        from tunnelkit.session.simulate.check import LIMIT_S, CheckHost, ToCheck, check

        async def run(command: Command) -> Completed:
            return await session.link.run(command.argv, stdin=command.stdin, timeout_s=LIMIT_S)

        job = session.cluster.job
        scheduler = None if job is None else job.scheduler
        host = CheckHost(run, session.link.name, scheduler, session.launch.settings)
        what = ToCheck(
            request.name,
            request.text.encode("latin-1"),
            [_word(one) for one in request.options],
            Path(request.here),
            [_word(one) for one in request.words],
            Wanted(request.mem, request.cpus, request.time_s),
        )
        return await check(host, what)

    return CheckScript.served_by(checks)


def _word(text: str) -> str:
    """Return a word of bytes as the link takes it."""
    return text.encode("latin-1").decode("utf-8", "surrogateescape")
