"""Handlers of all calls and streams of commands, over the control socket.

What they need of ranks and consoles is imported late (runtime/preload.py): `tk up` does not wait
for it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tunnelkit.errors import DebugError, MirrorError, NoSessionError, TunnelkitError
from tunnelkit.model import LocalForward
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.rpc import Handler
from tunnelkit.mux.tasks import cancel_all, start
from tunnelkit.session.connection.login_variables import login_variables
from tunnelkit.session.doctor.remote_access import handlers as doctor_handlers
from tunnelkit.session.files import mirror_json
from tunnelkit.session.files.mirror_set import MirrorSet
from tunnelkit.session.handlers import loops, mirror
from tunnelkit.session.handlers.barrier import barrier, check_alive
from tunnelkit.session.handlers.jobs.simulate import check_handler
from tunnelkit.session.handlers.jobs.submit import submit_handlers
from tunnelkit.session.handlers.processes import Processes
from tunnelkit.session.handlers.session_status import status_of
from tunnelkit.session.runtime import control_calls as calls
from tunnelkit.session.runtime.control_answers import (
    AttachAnswer,
    DownAnswer,
    ExplainAnswer,
    ForwardAnswer,
    InterruptAnswer,
    PullAnswer,
    RanksAnswer,
    ReadyAnswer,
    ResolveAnswer,
    ShortenAnswer,
    SyncAnswer,
)
from tunnelkit.session.runtime.control_server import ControlConnection, Header
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.runtime.status import SessionStatus
from tunnelkit.session.session import Session

if TYPE_CHECKING:
    from tunnelkit.diagnosis.verdict_json import DiagnosisInfo
    from tunnelkit.session.handlers.ranks import RankLooks
    from tunnelkit.session.top.shared import SharedTops


class ControlHandlers:
    """Handlers for calls and channels.

    stop(keep): ends the daemon; with `keep` the allocation stays.
    """

    def __init__(self, session: Session, stop: Callable[[bool], None]) -> None:
        self._session = session
        self._stop = stop
        #: True once `tk down` was called; the session itself begins its end a moment later.
        self._ending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._processes = Processes(session)
        self._rank_looks: RankLooks | None = None
        self._tops: SharedTops | None = None

    def handlers(self, connection: ControlConnection) -> dict[str, Handler]:
        """Return the handlers for one connected command."""
        assert connection.mux is not None

        async def follow(request: calls.Follow) -> SessionStatus:
            connection.follows, connection.follows_since = True, time.monotonic()
            return self.status()

        async def watch(request: calls.SyncWatch) -> None:
            mirrors = self._mirrors()
            connection.watches_mirror = True
            for one in mirrors.all:
                event = mirror_json.state_event(one.spec.name, one.status())
                connection.notify(calls.MIRROR, event)
            await asyncio.Event().wait()

        async def pull(request: calls.Pull) -> PullAnswer:
            mirrors = self._mirrors()
            await self._wait_settled()
            return await mirror.pull(mirrors, request, connection)

        table = [
            calls.Follow.served_by(follow),
            calls.Pull.served_by(pull),
            calls.SyncWatch.served_by(watch),
            calls.SyncResolve.served_by(self._sync_resolve),
            calls.SyncExplain.served_by(self._sync_explain),
            calls.Sync.served_by(self._sync),
            calls.Status.served_by(self._status),
            calls.Settled.served_by(self._settled),
            calls.Auth.served_by(self._auth),
            calls.Down.served_by(self._down),
            calls.Ready.served_by(self._ready),
            calls.ForwardAdd.served_by(self._forward_add),
            calls.ForwardCancel.served_by(self._forward_cancel),
            calls.Mount.served_by(self._mount),
            calls.Attach.served_by(self._attach),
            calls.Ranks.served_by(self._ranks),
            calls.Why.served_by(self._why),
            calls.Shorten.served_by(self._shorten),
            *submit_handlers(self._session),
            check_handler(self._session),
            calls.LoopInterrupt.served_by(self._loop_interrupt),
            calls.LoopRestart.served_by(self._loop_restart),
            calls.LoopStop.served_by(self._loop_stop),
        ]
        return {
            **dict(table),
            **self._processes.handlers(connection.mux),
            **doctor_handlers(self._session),
        }

    def opened(self, channel: Channel, header: Header, connection: ControlConnection) -> None:
        """Serve a stream that a command opened."""
        kind = header.get("type")
        try:
            if kind == calls.ExecStream.NAME and connection.mux is not None:
                process = calls.ExecStream.parse(header)
                start(self._tasks, self._processes.run(connection.mux, channel, process))
            elif kind == calls.PdbStream.NAME and connection.mux is not None:
                program = calls.PdbStream.parse(header)
                start(self._tasks, self._pdb(connection.mux, channel, program))
            elif kind == calls.JobLogStream.NAME:
                log = calls.JobLogStream.parse(header)
                start(self._tasks, self._job_log(channel, log))
            elif kind == calls.TopStream.NAME:
                top = calls.TopStream.parse(header)
                start(self._tasks, self._top(channel, top))
            elif kind == calls.ConsoleStream.NAME:
                start(self._tasks, self._console(channel, calls.ConsoleStream.parse(header)))
            elif kind == calls.LoopStream.NAME and header.get("adopt") is not None:
                start(self._tasks, self._loop(channel, calls.LoopAdopt.parse(header)))
            elif kind == calls.LoopStream.NAME:
                start(self._tasks, self._loop(channel, calls.LoopStream.parse(header)))
            else:
                channel.close({"error": f"unknown stream {kind!r}"})
        except TunnelkitError as error:
            channel.close({"failure": error.to_json()})

    # -- the session ------------------------------------------------------

    def status(self) -> SessionStatus:
        """Return the whole session as one JSON object, for `tk status --json`."""
        return status_of(self._session, closing=self._ending)

    async def _why(self, request: calls.Why) -> DiagnosisInfo:
        from tunnelkit.session.handlers.jobs.why import why

        return await why(self._session, request)

    async def _shorten(self, request: calls.Shorten) -> ShortenAnswer:
        from tunnelkit.session.handlers.jobs.start_sooner import shorten_limit

        return await shorten_limit(self._session, request)

    async def _job_log(self, channel: Channel, stream: calls.JobLogStream) -> None:
        from tunnelkit.session.logs.stream import show_log

        await show_log(self._session.cluster, channel, stream)

    async def _top(self, channel: Channel, stream: calls.TopStream) -> None:
        from tunnelkit.session.handlers.jobs.top import show_top
        from tunnelkit.session.top.shared import SharedTops

        if self._tops is None:
            self._tops = SharedTops()
        await show_top(self._session, self._tops, channel, stream)

    async def _status(self, request: calls.Status) -> SessionStatus:
        return self.status()

    async def _settled(self, request: calls.Settled) -> SessionStatus:
        """Wait for the end of the way up, and for a connection that is lost now."""
        if self._session.stuck is not None:
            await self._session.authenticate()
        await self._wait_up()
        await self._session.authenticate()
        self._check_alive()
        return self.status()

    async def _auth(self, request: calls.Auth) -> SessionStatus:
        """Reconnect with the help of the user who follows."""
        self._session.states.check()
        # What ssh inherits; without it an agent of this user's next login would never be found.
        cluster = self._session.launch.settings.cluster
        for name in login_variables(is_kubernetes=cluster.is_kubernetes):
            value = request.env.get(name, "")
            if value and "\0" not in value:
                os.environ[name] = value
        await self._session.authenticate()
        self._check_alive()
        return self.status()

    async def _down(self, request: calls.Down) -> DownAnswer:
        self._ending = True
        self._stop(request.keep)
        job = self._session.cluster.job
        own = job.job_id if job is not None else None
        return {"goes_on": self._session.launch.attach_job, "job": own}

    async def _wait_up(self) -> None:
        """As `_wait_settled`, but raises what keeps the agent away until the user acts."""
        session = self._session
        settled = asyncio.create_task(self._wait_settled())
        settled.add_done_callback(lambda task: session.states.poke())
        try:
            while not settled.done():
                if session.agents.stuck is not None:
                    raise session.agents.stuck
                await session.states.wait_change()
            await settled
        finally:
            await cancel_all(settled)

    async def _wait_settled(self) -> None:
        await self._session.settled.wait()
        self._session.states.check()

    def _check_alive(self) -> None:
        check_alive(self._session)
        if self._ending:
            raise NoSessionError("the session is ending (tk down)", hint="start another: tk up")

    # -- files ------------------------------------------------------------

    async def _sync(self, request: calls.Sync) -> SyncAnswer:
        mirrors = self._mirrors()
        await self._wait_settled()
        return await barrier(self._session, mirrors, request)

    async def _sync_resolve(self, request: calls.SyncResolve) -> ResolveAnswer:
        mirrors = self._mirrors()
        await self._wait_settled()
        return await mirror.resolve(mirrors, request)

    async def _sync_explain(self, request: calls.SyncExplain) -> ExplainAnswer:
        found = (await self._mirrors().explain(request.path)).to_json()
        if found["remote"]:
            found["remote"] = f"{self._session.link.name}:{found['remote']}"
        return cast("ExplainAnswer", found)

    def _mirrors(self) -> MirrorSet:
        mirrors = self._session.files.mirrors
        if mirrors is None:
            raise MirrorError(
                "the mirror is off", hint="set [mirror] enabled = true in tunnelkit.toml"
            )
        return mirrors

    async def _mount(self, request: calls.Mount) -> str:
        await self._wait_settled()
        remote = request.remote or self._session.launch.settings.mirror.remote
        await self._session.files.mount(remote, Path(request.mountpoint))
        return f"{self._session.link.name}:{remote}"

    # -- forwards ---------------------------------------------------------

    async def _forward_add(self, request: calls.ForwardAdd) -> ForwardAnswer:
        await self._wait_settled()
        self._check_alive()
        forward = replace(LocalForward.parse(request.forward), shared=request.shared)
        return await self._session.forwards.add(forward, wire=request.wire)

    async def _forward_cancel(self, request: calls.ForwardCancel) -> None:
        await self._session.forwards.cancel(request.port)

    # -- debugging --------------------------------------------------------

    async def _ready(self, request: calls.Ready) -> ReadyAnswer:
        """Wait for the allocation, the mirror's barrier and an armed debuggee: what F5 needs."""
        synced: SyncAnswer | None = None
        timeout_s = request.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_settled()
                self._check_alive()
                is_ready = self._session.states.state is SessionState.READY
                if self._session.stuck is not None and not is_ready:
                    # No user would answer while an editor waits for F5.
                    raise self._session.stuck
                if request.sync and self._session.files.mirrors is not None:
                    synced = await self._sync(calls.Sync(timeout_s=timeout_s, proof=True))
                await loops.wait_first(self._session)
                loop = self._session.loops.for_editor(request.loop)
                if not loop.loop.debugs:
                    raise DebugError(
                        "the running loop's command is no Python program",
                        hint="F5 needs: tk loop python FILE",
                    )
                generation = await loop.loop.wait_armed()
        except TimeoutError:
            raise DebugError(
                f"not ready within {timeout_s:.0f} s: {self._session.states.state}"
                f" {self._session.states.detail}".rstrip(),
                hint="see `tk status` and `tk logs`",
                transient=True,
            ) from None
        return {"generation": generation, "port": loop.port.port, "sync": synced}

    async def _attach(self, request: calls.Attach) -> AttachAnswer:
        await self._wait_settled()
        self._check_alive()
        from tunnelkit.session.handlers.attach import attach

        return await attach(self._session, request)

    async def _loop(self, channel: Channel, stream: calls.LoopStream | calls.LoopAdopt) -> None:
        """Run (or watch again) a loop for a terminal; the loop ends with the terminal."""
        try:
            await self._wait_settled()
            self._check_alive()
            notes: tuple[str, ...] = ()
            if isinstance(stream, calls.LoopAdopt):
                await self._session.loops.adopted()
                loop = self._session.loops.get(stream.adopt)
            else:
                loop, notes = await loops.start(self._session, stream)
        except TunnelkitError as error:
            channel.close({"failure": error.to_json()})
            return
        await loops.show(self._session, loop, channel, notes, keep=stream.keep)

    async def _pdb(self, mux: Mux, channel: Channel, stream: calls.PdbStream) -> None:
        try:
            await self._wait_settled()
            self._check_alive()
            from tunnelkit.session.handlers.pdb_text import run_pdb

            await run_pdb(self._session, mux, channel, stream)
        except TunnelkitError as error:
            channel.close({"failure": error.to_json()})

    async def _console(self, channel: Channel, stream: calls.ConsoleStream) -> None:
        from tunnelkit.session.debugging.attached_ranks import loop_for_console
        from tunnelkit.session.handlers.console import ConsoleServer

        loops, changes = self._session.loops, self._session.states.wait_change
        try:
            self._check_alive()
            loop = loop_for_console(loops, stream.loop, changes)
        except TunnelkitError as error:
            channel.close({"failure": error.to_json()})
            return
        await ConsoleServer(self._session, loop, channel, entry=stream.entry).run()

    async def _loop_restart(self, request: calls.LoopRestart) -> None:
        await self._session.loops.get(request.loop).loop.restart("restarted by you")

    async def _ranks(self, request: calls.Ranks) -> RanksAnswer:
        self._check_alive()
        return await self._looks().look(request)

    def _looks(self) -> RankLooks:
        """Return what remembers the earlier looks at ranks."""
        if self._rank_looks is None:
            from tunnelkit.session.handlers.ranks import RankLooks

            self._rank_looks = RankLooks(self._session)
        return self._rank_looks

    async def _loop_interrupt(self, request: calls.LoopInterrupt) -> InterruptAnswer:
        from tunnelkit.session.handlers.interrupt import interrupt_ranks

        return await interrupt_ranks(self._session, request, self._looks().classes())

    async def _loop_stop(self, request: calls.LoopStop) -> None:
        all_loops = self._session.loops
        await all_loops.stop(all_loops.get(request.loop).loop.id)
