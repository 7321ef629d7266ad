"""Handlers of all calls and streams of commands, over the control socket."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tunnelkit import __version__
from tunnelkit.debug.loop_command import understand
from tunnelkit.errors import DebugError, MirrorError, NoSessionError, TunnelkitError
from tunnelkit.model import LocalForward
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.rpc import Handler
from tunnelkit.session.agent.exec_streams import ExecStreams
from tunnelkit.session.doctor.remote_access import handlers as doctor_handlers
from tunnelkit.session.files import mirror_json
from tunnelkit.session.files.mirror_set import MirrorSet
from tunnelkit.session.files.mounted_paths import here_in
from tunnelkit.session.handlers import mirror
from tunnelkit.session.handlers.attach import attach
from tunnelkit.session.handlers.barrier import SYNC_TIMEOUT_S, barrier, check_alive
from tunnelkit.session.handlers.loop_start import prepared
from tunnelkit.session.runtime.control_server import ControlConnection
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.runtime.status import SessionStatus
from tunnelkit.session.session import Session

_READY_TIMEOUT_S = 60.0
_T = TypeVar("_T")


class ControlHandlers:
    """Handlers for calls and channels.
    stop(keep): ends the daemon; with `keep` the allocation stays."""

    def __init__(self, session: Session, stop: Callable[[bool], None]) -> None:
        self._session = session
        self._stop = stop
        #: True once `tk down` was called; the session itself begins its end a moment later.
        self._ending = False
        self._tasks: set[asyncio.Task[None]] = set()
        #: The ExecStreams of processes on other nodes, by connection and channel.
        self._elsewhere: dict[tuple[Mux, int], ExecStreams] = {}

    def handlers(self, connection: ControlConnection) -> dict[str, Handler]:
        """Return the handlers for one connected command."""

        async def follow(params: dict[str, Any]) -> SessionStatus:
            connection.follows, connection.follows_since = True, time.monotonic()
            return self.status()

        async def signal(params: dict[str, Any]) -> None:
            mux, number = connection.mux, int(params["channel"])
            assert mux is not None
            await self._execs_of(mux, number).signal(mux, number, str(params["signal"]))

        async def resize(params: dict[str, Any]) -> None:
            mux, number = connection.mux, int(params["channel"])
            assert mux is not None
            rows, cols = int(params["rows"]), int(params["cols"])
            await self._execs_of(mux, number).resize(mux, number, rows, cols)

        async def watch(params: dict[str, Any]) -> None:
            """Tell of the mirror's events until the command has gone."""
            mirrors = self._mirrors()
            assert connection.rpc is not None
            connection.watches_mirror = True
            for one in mirrors.all:
                event = mirror_json.state_event(one.spec.name, one.status())
                connection.rpc.notify("mirror", **event)
            await asyncio.Event().wait()

        async def pull(params: dict[str, Any]) -> dict[str, Any]:
            mirrors = self._mirrors()
            await self._wait_settled()
            return await mirror.pull(mirrors, params, connection)

        return {
            "follow": follow,
            "pull": pull,
            "sync.resolve": self._sync_resolve,
            "sync.watch": watch,
            "sync.explain": self._sync_explain,
            "status": self._status,
            "settled": self._settled,
            "auth": self._auth,
            "down": self._down,
            "sync": self._sync,
            "ready": self._ready,
            "forward.add": self._forward_add,
            "forward.cancel": self._forward_cancel,
            "mount": self._mount,
            "attach": self._attach,
            "loop.interrupt": self._loop_interrupt,
            "loop.restart": self._loop_restart,
            "loop.stop": self._loop_stop,
            "exec.signal": signal,
            "exec.resize": resize,
            **doctor_handlers(self._session),
        }

    def opened(
        self, channel: Channel, header: dict[str, Any], connection: ControlConnection
    ) -> None:
        """Serve a stream that a command opened."""
        kind = header.get("type")
        if kind == "exec":
            assert connection.mux is not None
            self._spawn(self._exec(connection.mux, channel, header))
        elif kind == "loop":
            self._spawn(self._loop(channel, header))
        else:
            channel.close({"error": f"unknown stream {kind!r}"})

    # -- status -----------------------------------------------------------

    def status(self) -> SessionStatus:
        """Return the whole session as one JSON object, for `tk status --json`."""
        session = self._session
        allocation = session.cluster.allocation
        pending, mirrors = session.pending, session.files.mirrors
        return {
            "version": __version__,
            "state": SessionState.CLOSING if self._ending else session.states.state,
            "detail": session.states.detail,
            "failure": session.failure.to_json() if session.failure is not None else None,
            "attention": session.stuck.one_line() if session.stuck is not None else None,
            "since": session.states.since,
            "pid": os.getpid(),
            "project": str(session.launch.settings.project_dir),
            "login": session.link.name,
            "wanted_node": session.launch.node,
            "scheduler": session.cluster.scheduler.name if session.cluster.scheduler else "none",
            "job": None
            if session.cluster.job is None or session.cluster.job.job_id is None
            else {
                "id": session.cluster.job.job_id,
                "adopted": session.cluster.adopted,
                "made_by": "you" if session.launch.attach_job is not None else "tk",
                "requeues": session.requeues,
                "nodes": list(allocation.nodes) if allocation is not None else [],
                "time_left_s": session.time_limit.left_s,
                "time_is_near": session.time_limit.warned,
                "pending_reason": pending.reason if pending is not None else None,
                "start_estimate": pending.start_estimate if pending is not None else None,
            },
            "node": self._node(),
            "other_nodes": session.peers.describe(),
            "route": session.cluster.route,
            "agent": session.agent_info or None,
            "mirror": mirror_json.describe(mirrors.project) if mirrors is not None else None,
            "mirrors": [mirror_json.describe(one) for one in mirrors.by_state()] if mirrors else [],
            "debug_port": session.editor_port.port,
            "loops": [loop.loop.describe() for loop in session.loops.all()],
            "forwards": session.forwards.list(),
            "mounts": session.files.mounts.describe(),
            "events": list(session.events.recent),
        }

    def _node(self) -> str | None:
        """Return the agent's node, with the scheduler's name for it if there is one."""
        cluster, told = self._session.cluster, self._session.agent_info.get("node")
        return cluster.node if told and cluster.job is not None else told

    async def _status(self, params: dict[str, Any]) -> SessionStatus:
        return self.status()

    async def _settled(self, params: dict[str, Any]) -> SessionStatus:
        """Wait until the session is up (again), or raise its failure."""
        if self._session.stuck is not None:
            await self._session.authenticate()
        await self._wait_settled()
        return await self._auth(params)

    async def _auth(self, params: dict[str, Any]) -> SessionStatus:
        """Reconnect with the help of the user who follows."""
        if self._session.failure is not None:
            raise self._session.failure
        await self._session.authenticate()
        self._check_alive()
        return self.status()

    async def _down(self, params: dict[str, Any]) -> dict[str, Any]:
        self._ending = True
        self._stop(bool(params.get("keep")))
        job = self._session.cluster.job
        own = job.job_id if job is not None else None
        return {"goes_on": self._session.launch.attach_job, "job": own}

    # -- mirror and readiness ---------------------------------------------

    async def _sync(self, params: dict[str, Any]) -> dict[str, Any]:
        mirrors = self._mirrors()
        await self._wait_settled()
        return await barrier(self._session, mirrors, params)

    async def _sync_resolve(self, params: dict[str, Any]) -> dict[str, Any]:
        """Settle conflicts at absolute local paths: `tk sync --ours`, `--theirs`."""
        mirrors = self._mirrors()
        await self._wait_settled()
        timeout_s = float(params.get("timeout_s", SYNC_TIMEOUT_S))
        found = await mirror.resolve(mirrors, params, timeout_s)
        return {**found, "warnings": mirrors.news()}

    async def _sync_explain(self, params: dict[str, Any]) -> dict[str, Any]:
        """Explain why an absolute local path is mirrored or not, and its state."""
        found = (await self._mirrors().explain(str(params["path"]))).to_json()
        if found["remote"]:
            found["remote"] = f"{self._session.link.name}:{found['remote']}"
        return found

    def _mirrors(self) -> MirrorSet:
        mirrors = self._session.files.mirrors
        if mirrors is None:
            raise MirrorError(
                "the mirror is off", hint="set [mirror] enabled = true in tunnelkit.toml"
            )
        return mirrors

    async def _ready(self, params: dict[str, Any]) -> dict[str, Any]:
        """Wait for the allocation, the mirror's barrier and an armed debuggee: what F5 needs."""
        timeout_s = float(params.get("timeout_s", _READY_TIMEOUT_S))
        synced = None
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_settled()
                self._check_alive()
                if self._session.stuck is not None:
                    # No user would answer while an editor waits for F5.
                    raise self._session.stuck
                if params.get("sync") and self._session.files.mirrors is not None:
                    synced = await self._sync({"timeout_s": timeout_s, "proof": True})
                loop = self._session.loops.get(params.get("loop"))
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

    async def _wait_settled(self) -> None:
        await self._session.settled.wait()
        if self._session.failure is not None:
            raise self._session.failure

    def _check_alive(self) -> None:
        check_alive(self._session)
        if self._ending:
            raise NoSessionError("the session was told to end", hint="start another one: tk up")

    # -- forwards ---------------------------------------------------------

    async def _forward_add(self, params: dict[str, Any]) -> dict[str, Any]:
        await self._wait_settled()
        forward = LocalForward.parse(str(params["forward"]))
        return await self._session.forwards.add(
            replace(forward, shared=bool(params.get("shared"))), wire=bool(params.get("wire"))
        )

    async def _forward_cancel(self, params: dict[str, Any]) -> None:
        await self._session.forwards.cancel(int(params["port"]))

    # -- sshfs ------------------------------------------------------------

    async def _mount(self, params: dict[str, Any]) -> str:
        await self._wait_settled()
        remote = str(params.get("remote") or self._session.launch.settings.mirror.remote)
        await self._session.files.mount(remote, Path(str(params["mountpoint"])))
        return f"{self._session.link.name}:{remote}"

    # -- loops ------------------------------------------------------------

    async def _loop(self, channel: Channel, header: dict[str, Any]) -> None:
        """Run (or watch again) a loop for a terminal; the loop ends with the terminal."""
        try:
            await self._wait_settled()
            self._check_alive()
            if header.get("adopt") is not None:
                loop = self._session.loops.get(int(header["adopt"]))
                notes: tuple[str, ...] = ()
            else:
                words = [str(word) for word in header["words"]]
                command = understand(words, ranks=bool(header.get("ranks")))
                notes = command.notes
                if self._session.files.mirrors is not None:
                    await self._session.files.mirrors.barrier(SYNC_TIMEOUT_S)
                cwd, here = self._cwd(header), str(header.get("here") or "")
                command, lent = await prepared(self._session, command, cwd=cwd, here=here)
                notes += lent
                if header.get("post_mortem") and (command.ranks or not command.interpreter):
                    notes += ("--post-mortem is for a Python program by itself: not used here",)
                loop = await self._session.loops.start(
                    command,
                    cwd=cwd,
                    port=header.get("port"),
                    standby=header.get("standby"),
                    preload=header.get("preload"),
                    only=header.get("only"),
                    post_mortem=header.get("post_mortem"),
                    reload=bool(header.get("reload")),
                )
        except TunnelkitError as error:
            channel.close({"failure": error.to_json()})
            return
        payload = event_payload(
            "loop", id=loop.loop.id, port=loop.port.port, notes=list(notes), **_where(self._session)
        )
        channel.write_nowait(LoopRecord(EVENT, 0, payload).encode())
        loop.watch(channel)
        over = asyncio.create_task(channel.closed())
        ended = asyncio.create_task(loop.loop.wait_over())
        await asyncio.wait([over, ended], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        ended.cancel()
        if ended.done():
            await self._session.end_is_told(loop.loop.id)
        elif self._session.loops.has(loop.loop.id):
            await self._session.loops.stop(loop.loop.id)
        channel.close({})

    async def _loop_restart(self, params: dict[str, Any]) -> None:
        await self._session.loops.get(params.get("loop")).loop.restart("restarted by you")

    async def _attach(self, params: dict[str, Any]) -> dict[str, Any]:
        await self._wait_settled()
        self._check_alive()
        return await attach(self._session, params.get("target"), params.get("port"))

    async def _loop_interrupt(self, params: dict[str, Any]) -> dict[str, Any]:
        loops, rank = self._session.loops, params.get("rank")
        with_editor = [one.loop.id for one in loops.all() if one.loop.has_editor]
        loop = loops.get(params.get("loop") or max(with_editor, default=None)).loop
        return {
            "loop": loop.id,
            "processes": await loop.interrupt(None if rank is None else int(rank)),
        }

    async def _loop_stop(self, params: dict[str, Any]) -> None:
        await self._session.loops.stop(self._session.loops.get(params.get("loop")).loop.id)

    # -- processes --------------------------------------------------------

    async def _exec(self, mux: Mux, channel: Channel, header: dict[str, Any]) -> None:
        """Run a process on the node, or on the one that `header` names."""
        node = header.get("node")
        try:
            execs = await self._session.peers.execs(str(node)) if node is not None else None
        except TunnelkitError as error:
            channel.close({"failure": error.to_json()})
            return
        if execs is None:
            await self._session.execs.run(mux, channel, self._placed(header))
            return
        self._elsewhere[mux, channel.id] = execs
        try:
            await execs.run(mux, channel, self._placed(header))
        finally:
            del self._elsewhere[mux, channel.id]

    def _execs_of(self, mux: Mux, channel_id: int) -> ExecStreams:
        return self._elsewhere.get((mux, channel_id), self._session.execs)

    # -- inside -----------------------------------------------------------

    def _cwd(self, header: dict[str, Any]) -> str:
        """Return the node's directory that corresponds to the command's working directory."""
        if header.get("cwd"):
            return str(header["cwd"])
        mounted = here_in(self._session.files.mounts, header)
        if mounted is not None:
            return mounted
        mirrors = self._session.files.mirrors
        if mirrors is None or not mirrors.project.remote_root:
            return "~"
        there = mirrors.remote_path(str(header["here"])) if header.get("here") else None
        return there or mirrors.project.remote_root

    def _placed(self, header: dict[str, Any]) -> dict[str, Any]:
        return {**header, "cwd": self._cwd(header)}

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _where(session: Session) -> dict[str, Any]:
    allocation = session.cluster.allocation
    return {
        "node": session.agent_info.get("node"),
        "job": allocation.job_id if allocation is not None else None,
    }
