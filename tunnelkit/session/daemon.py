"""The session's process: `python -m tunnelkit.session.daemon PROJECT_DIR`.

It holds a lock as long as it lives, so a session has one daemon; the control socket
shows that it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import io
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tunnelkit.errors import NoSessionError, TunnelkitError
from tunnelkit.mux.malloc import one_heap
from tunnelkit.mux.rpc import RpcError
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.backends.registry import choose
from tunnelkit.session.handlers.jobs.submit import login_of_session
from tunnelkit.session.handlers.service import ControlHandlers
from tunnelkit.session.host import SessionHost
from tunnelkit.session.runtime.control_answers import SayNotice, StateNotice
from tunnelkit.session.runtime.control_calls import SAY, SENDING, STATE, Prompt
from tunnelkit.session.runtime.control_server import ControlServer
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import SessionPaths, hold_lock, session_paths
from tunnelkit.session.runtime.shutdown import BUDGET_S, ShutdownSequence
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.session import Session
from tunnelkit.session.submit.watch import watch_noted
from tunnelkit.text_format import shown

log = logging.getLogger("tunnelkit.session")
_PROMPT_TIMEOUT_S = 120.0
#: A failed session stays this long, so that the waiting command gets the reason.
_FAILED_STAYS_S = 2.0
#: More than the limit of all shutdown steps: then the process is ended.
_CLOSING_S = 6.0
_DESCRIPTORS = 8192


class Daemon:
    """One session with its control socket, from start to end.

    end_within: called as the end begins, with the seconds after which the process may be
    ended, whatever still runs.
    """

    def __init__(
        self, paths: SessionPaths, *, end_within: Callable[[float], None] = lambda limit_s: None
    ) -> None:
        self._paths = paths
        self._end_within = end_within
        launch = LaunchSpec.load(paths.launch_wanted)
        self._session = Session(
            launch,
            paths,
            choose(launch.settings),
            SessionHost(
                prompter=self._prompt,
                present=lambda: any(one.follows for one in self._control.connections),
                say=self._say,
                changed=self._changed,
                tell=lambda event: self._control.notify_watchers(event),
                sending=lambda progress: self._control.notify_followers(SENDING, progress),
            ),
        )
        self._service = ControlHandlers(self._session, self._stop)
        self._control = ControlServer(
            paths.control_socket, self._service.handlers, self._service.opened
        )
        self._stopping = asyncio.Event()
        self._keep = False

    async def run(self) -> None:
        """Serve until `tk down`, or until the start has failed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        loop.add_signal_handler(signal.SIGUSR2, _log_tasks)
        self._control.open()
        life = asyncio.create_task(self._live())
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([life, stop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._end_within(BUDGET_S + _CLOSING_S)
            ending = ShutdownSequence()
            await ending.step("the session's life", cancel_all(life, stop), 6.0)
            await self._finish(ending)
            await ending.step("the control socket", self._control.close(), 2.0)
            # Only threads remain, and asyncio would wait for them without end.
            self._end_within(_CLOSING_S)

    async def _live(self) -> None:
        try:
            await self._session.up()
        except TunnelkitError as error:
            log.error("%s", error.one_line())
            await self._until_heard()
            return
        except Exception as error:
            log.exception("the way up met an error of tk's own")
            self._session.states.fail(SessionState.FAILED, self._own(error))
            await self._until_heard()
            return
        watching = asyncio.create_task(watch_noted(lambda: login_of_session(self._session)))
        try:
            await self._session.run()
        except Exception as error:
            log.exception("the session met an error of tk's own")
            await self._session.break_off(self._own(error, "`tk up` goes on with the job; "))
        finally:
            await cancel_all(watching)
        # The daemon stays, to show `tk status` and the next command why the session is over.
        await self._stopping.wait()

    def _own(self, error: Exception, advice: str = "") -> TunnelkitError:
        """Return an error of tk itself as a TunnelkitError."""
        return TunnelkitError(
            f"the session met an error of its own, {type(error).__name__}",
            cause=str(error) or None,
            hint=f"{advice}please report it with {self._paths.session_log}",
        )

    async def _until_heard(self) -> None:
        """Wait until the following command has read the failure, for a bounded time."""
        came = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAILED_STAYS_S):
                while True:
                    follows = any(one.follows for one in self._control.connections)
                    if came and not follows:
                        return
                    came = came or follows
                    await asyncio.sleep(0.02)

    async def _finish(self, ending: ShutdownSequence) -> None:
        failed = self._session.states.failure is not None and not self._stopping.is_set()
        if self._keep or (
            failed and not self._session.cluster.may_cancel(young=self._session.agents.is_young)
        ):
            await self._session.close("session ended", ending)
            if failed and self._session.cluster.nothing_there:
                self._session.record.forget_attached()
        else:
            await self._session.down(ending)
            if self._session.reached_cluster and self._session.all_ended:
                # Without this file the next `tk up` knows that nothing is left to take over.
                self._paths.launch.unlink(missing_ok=True)
        self._paths.launch_wanted.unlink(missing_ok=True)
        self._session.settled.set()

    def _on_signal(self, number: signal.Signals) -> None:
        log.info("%s: this side ends, the job lives on", number.name)
        self._stop(True)

    def _stop(self, keep: bool) -> None:
        self._keep = keep
        self._stopping.set()

    def _say(self, text: str) -> None:
        text = shown(text)  # a host's words may be in it; users show them and the log on a terminal
        log.info("%s", text)
        self._session.events.add("message", text)
        notice: SayNotice = {"text": text}
        self._control.notify_followers(SAY, notice)

    def _changed(self) -> None:
        states = self._session.states
        log.debug("state %s %s", states.state, states.detail)
        notice: StateNotice = {"state": states.state, "detail": states.detail}
        self._control.notify_followers(STATE, notice)

    async def _prompt(self, prompt: str, echo: bool) -> str | None:
        """Ask the user at a terminal that follows the session, the latest one first.

        Returns None if there is no answer.
        """
        came = sorted(self._control.connections, key=lambda one: -one.follows_since)
        for connection in came:
            if connection.follows and connection.rpc is not None:
                with contextlib.suppress(RpcError, TimeoutError):
                    async with asyncio.timeout(_PROMPT_TIMEOUT_S):
                        question = Prompt(text=prompt, echo=echo)
                        answer = await connection.rpc.call(question.NAME, **question.to_json())
                        if answer is not None:
                            return str(answer)
        return None


def _log_tasks() -> None:
    """Log what every task waits for, for a session that seems to hang."""
    for task in asyncio.all_tasks():
        text = io.StringIO()
        task.print_stack(file=text)
        log.warning("%s", text.getvalue())


def _cut_off(limit_s: float) -> None:
    """End this process after that time in any case, with all threads' stacks in the log."""
    faulthandler.dump_traceback_later(limit_s, exit=True)


def _log_to(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # Output of libraries goes to the log, too, not to another program's terminal.
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    logging.basicConfig(
        stream=sys.stderr,
        level=os.environ.get("TK_LOG", "INFO").upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _allow_descriptors() -> None:
    """Raise the limit of descriptors: some systems begin with 256; many ranks need more."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _DESCRIPTORS)
    if now != resource.RLIM_INFINITY and now < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def main() -> int:
    """Run the daemon of the project directory that is the only argument."""
    paths = session_paths(Path(sys.argv[1]))
    paths.make()
    _log_to(paths.session_log)
    # A crash of the interpreter must not be silent.
    faulthandler.enable()
    os.chdir("/")
    _allow_descriptors()
    one_heap()

    async def run() -> None:
        await Daemon(paths, end_within=_cut_off).run()

    try:
        with hold_lock(paths):
            asyncio.run(run())
    except NoSessionError as error:
        log.error("%s", error.one_line())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
