"""One session: the resources of one `tk up`, and its way through the states (runtime/state.py).

It joins the rooms and owns their tasks; work of a single room is done in that room.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.errors import NoSessionError, TunnelkitError
from tunnelkit.messages.agent_calls import INFO
from tunnelkit.model import Allocation, JobStatus
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.agent.client import AgentClient, AgentGone
from tunnelkit.session.agent.exec_streams import ExecStreams
from tunnelkit.session.agent.find_python import introduced
from tunnelkit.session.agent.node_agents import PeerAgents
from tunnelkit.session.allocation import AllocationManager
from tunnelkit.session.backends.backend import Backend
from tunnelkit.session.connection.login_connection import LoginConnection
from tunnelkit.session.debugging.loops import Loops
from tunnelkit.session.debugging.port_fallback import open_near
from tunnelkit.session.files.file_services import SessionFiles
from tunnelkit.session.forwards import SessionForwards
from tunnelkit.session.host import SessionHost
from tunnelkit.session.job.time_limit import TimeLimit, in_words
from tunnelkit.session.job_monitor import JobMonitor
from tunnelkit.session.runtime.background_tasks import BackgroundTasks
from tunnelkit.session.runtime.event_log import EventLog
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import SessionPaths, job_name
from tunnelkit.session.runtime.shutdown import ShutdownSequence
from tunnelkit.session.runtime.state import SessionState, StateMachine

log = logging.getLogger("tunnelkit.session")
#: If `tk up` fails, a job of its own that is younger than this is cancelled.
_YOUNG_S = 60.0


class Session:
    """Owner of link, allocation, agent, mirror, forwards and loops.

    Call `up`, then `run`, then `down` (the allocation ends) or `close` (it stays).
    """

    def __init__(
        self, launch: LaunchSpec, paths: SessionPaths, backend: Backend, host: SessionHost
    ) -> None:
        settings = launch.settings
        self.launch = launch
        self._paths = paths
        #: True once a job of this session may exist.
        self.reached_cluster = False
        self.events = EventLog(paths.events)
        self.states = StateMachine(host.changed, self._entered)
        self.agent_info: dict[str, Any] = {}
        self.pending: JobStatus | None = None
        self.settled = asyncio.Event()
        self.failure: TunnelkitError | None = None
        self._say = host.say
        self._tasks = BackgroundTasks()
        self._connection = LoginConnection(
            backend,
            settings,
            paths,
            prompter=host.prompter,
            present=host.present,
            notice=self._notice,
            lost=lambda why: self.states.become(SessionState.RECONNECTING, why),
            changed=self.states.poke,
        )
        self.link = self._connection.link
        cluster = self.cluster = AllocationManager(
            self.link,
            settings,
            backend,
            name=job_name(settings.project_dir, paths.id),
            say=host.say,
            record=self.events.add,
            cancelled=paths.cancelled,
            wait_link=self._connection.wait_up,
            attach_job=launch.attach_job,
        )
        self.editor_port = EditorPort(settings.debug.port)
        self.loops = Loops(
            self.agent,
            self.editor_port,
            settings.debug,
            place=lambda: self.files.place(),
            log=paths.loop_log,
        )
        self.forwards = SessionForwards(
            self.link,
            self.agent,
            node=lambda: self.cluster.node,
            by_link=lambda: self.cluster.link_forwards,
        )
        self.execs = ExecStreams(self.agent)
        self.peers = PeerAgents(self.agent, cluster.peer_stream, cluster.start_peer, cluster.repair)
        self.time_limit = TimeLimit(paths.state / "time-limit", self._time_is_near)
        self._watch = JobMonitor(self.cluster, self.time_limit, self._agent_is_lost)
        #: Number of times that the job went back into the queue.
        self.requeues = 0
        self.files = self._make_files(backend, host)
        #: True after `down` if the end of the allocation is certain.
        self.all_ended = False
        self._agent: AgentClient | None = None
        self._allocated_at: float | None = None
        self._keeping: asyncio.Task[None] | None = None

    def _make_files(self, backend: Backend, host: SessionHost) -> SessionFiles:
        return SessionFiles(
            self.launch,
            self._paths,
            self.link,
            agent=lambda: None if self.states.state is SessionState.ENDED else self._agent,
            only_on_nodes=not backend.has_login_host,
            node=lambda: self.cluster.files_node,
            dial=self.cluster.files_stream,
            repair=self.cluster.repair,
            may_write=self.cluster.wait_prepared,
            say=host.say,
            changed=host.changed,
            tell=host.tell,
            sending=host.sending,
            landed=self.loops.files_changed,
        )

    @property
    def stuck(self) -> TunnelkitError | None:
        """The error that only the user can solve (`tk auth`), or None."""
        return self._connection.stuck

    def agent(self) -> AgentClient:
        """Return the client of the agent. Raises NoSessionError, or the session's failure."""
        if self.failure is not None:
            raise self.failure
        if self._agent is None:
            raise NoSessionError(
                f"the session is not ready: {self.states.state}",
                cause=self.states.detail or None,
                hint="see `tk status`",
            )
        return self._agent

    # -- the way up -------------------------------------------------------

    async def up(self) -> None:
        """Go through all states until ready. Raises TunnelkitError; then call `down`."""
        self._connection.arrive(coming=True)
        try:
            taken = [one.bind_port for one in self.launch.settings.all_forwards]
            moved = open_near(self.editor_port, but=taken)
            await self.files.look()  # before the user is asked for a password
            self.states.become(SessionState.CONNECTING, self.link.name)
            await self._connection.open()
            if moved is not None:
                self._say(moved)  # only now, when `tk up` has connected to the control socket
            # From here on it may take hours in a queue, and the user may have left.
            self._connection.arrive()
            self._keeping = self._tasks.spawn(self._connection.run())
            self.files.mounts.adopt()
            self.states.become(SessionState.PREPARING, self.link.name)
            self._tasks.spawn(self.files.keep_agent())
            ways = [
                asyncio.create_task(self.files.start_patiently(self._connection.wait_up)),
                asyncio.create_task(self._get_agent()),
            ]
            try:
                # The first failure counts: don't wait in the queue for a mirror that can't start.
                await asyncio.gather(*ways)
            finally:
                await cancel_all(*ways)
            await self.forwards.open_all(self.launch.settings.all_forwards, self._say)
            self._tasks.spawn(self.cluster.learn_names())
        except TunnelkitError as error:
            self.fail(error)
            raise
        finally:
            self._connection.leave()
            self.settled.set()
        self.states.become(SessionState.READY)

    def fail(self, failure: TunnelkitError) -> None:
        """Enter state `failed`: the way up ends here; every command gets `failure`."""
        self.failure = failure
        self.events.add("error", failure.one_line(), error=failure)
        self.states.become(SessionState.FAILED, failure.one_line())

    async def _get_agent(self) -> None:
        await self.cluster.prepare()
        self._reach_cluster()
        self.states.become(SessionState.PENDING)
        await self.cluster.occupy(self.launch.node, self._on_pending, self._reach_agent)

    def _reach_cluster(self) -> None:
        """Make this session's launch record the one that the next session reads.

        Not before: a start that never reached the cluster must not make the next `tk up` or
        `tk down` forget where an earlier session's job is.
        """
        self.reached_cluster = True
        self._paths.launch_wanted.replace(self._paths.launch)

    async def _reach_agent(self, allocation: Allocation) -> None:
        self.pending = None
        self.time_limit.begins(allocation.job_id, allocation.time_left_s)
        self._allocated_at = time.monotonic()
        where = ", ".join(allocation.nodes) or self.link.name
        self.states.become(SessionState.STARTING, where)
        self._agent = client = AgentClient(
            self.cluster.open_stream,
            on_channel=self._agent_opened,
            notices={"ending": self._agent_ending, "time-limit": self._time_limit},
            on_link=self._on_agent_link,
            on_stuck=self._connection.on_stuck,
            repair=self.cluster.repair,
        )
        await client.connect_patiently(self.cluster.has_ended)
        info = await INFO.ask(client, {})
        self.agent_info = dict(info)
        self.files.node_is(client)
        self.peers.allocated(allocation.nodes)
        self._tasks.spawn(self.peers.start())
        self._say(introduced(info, allocation.job_id, self.cluster.installed.python))
        adopted = await self.loops.adopt()
        if adopted:
            self._say(f"took over {adopted} debug loop(s)")

    # -- life -------------------------------------------------------------

    async def run(self) -> None:
        """Keep the session up until the allocation ends; return in state `ended`."""
        while True:
            assert self._agent is not None
            watching = self._tasks.spawn(self._watch.run())
            try:
                why = await self._agent.run()
            except AgentGone as error:
                why = error.one_line()
            # If the agent is gone, the job has mostly ended; the scheduler knows the reason.
            fate = await self._watch.fate()
            await cancel_all(watching)
            if not fate.back:
                break
            try:
                await self._run_again(why)
            except TunnelkitError as error:
                why = error.one_line()
                break
        await self._tasks.cancel()
        await self._end(fate.ended or why)

    async def _run_again(self, why: str) -> None:
        """Wait for a requeued job, then start everything again but the loops.
        Raises TunnelkitError if the job does not come back.
        """
        job_id = self.cluster.job.job_id if self.cluster.job is not None else None
        said = f"job {job_id} went back into the queue"
        self._say(f"{said} ({why}); its debug loops have ended")
        self.requeues += 1
        await self.loops.close(said)
        # While the old node is known: the forwards depend on it.
        forwards = await self.forwards.take()
        gone, self._agent, self.agent_info = self._agent, None, {}
        await self.peers.close()
        if gone is not None:
            await gone.close(said)
        self.cluster.ended = None
        self.files.node_changed()
        self.time_limit.runs_again()
        self.states.become(SessionState.PENDING, said)
        await self._reach_agent(await self.cluster.wait_running(self._on_pending))
        for lost in await self.forwards.put_back(forwards):
            self._say(lost)
        self._become_ready()
        self._say(f"job {job_id} runs again, on {self.cluster.node}")

    async def _end(self, why: str) -> None:
        await self.loops.close(f"the allocation is over: {why}")
        await self.peers.close()
        self.time_limit.close()
        self.events.add("scheduler", why)
        self.states.become(SessionState.ENDED, why)
        self._say(f"the allocation is over: {why}")
        last = await self._watch.last_state()
        if last is not None:
            self.events.add("scheduler", last)
            self.states.become(SessionState.ENDED, last)

    async def break_off(self, failure: TunnelkitError) -> None:
        """Enter state `ended` after an error of tk itself; every command gets `failure`.
        The allocation and its processes stay: the next session can take them over.
        """
        self.failure = failure
        self.events.add("error", failure.one_line(), error=failure)
        self.states.become(SessionState.ENDED, failure.one_line())
        try:
            await self._tasks.cancel()
            await self.loops.close()
        except Exception:
            log.exception("what had failed could not be ended in order")

    def may_cancel(self) -> bool:
        """Return True if a failed `up` may end the job: this session submitted it, and it is young.

        Of a job that the user submitted only the agent ends.
        A job that was taken over, or that waited in the queue, is kept for the next `tk up`.
        """
        job = self.cluster.job
        if self.cluster.entered:
            return True
        if job is None or not job.submitted:
            return False
        return self._allocated_at is None or time.monotonic() - self._allocated_at < _YOUNG_S

    async def down(self, ending: ShutdownSequence | None = None) -> None:
        """End everything, the allocation too; `all_ended` is True if that is certain.

        Idempotent. Takes little longer than `ending` allows, even if something hangs.
        """
        over = self.states.state is SessionState.ENDED
        ending = ending or ShutdownSequence()
        self.states.become(SessionState.CLOSING)
        # But the link is kept: one that is cut just now may come back in time.
        await ending.step("the session's tasks", self._tasks.cancel(but=self._keeping), 3.0)
        await ending.step("the debug loops on the node", self.loops.stop_all(), 7.0)
        ended = self._agent is None or over
        if self._agent is not None and self._agent.is_up:
            await ending.step("the other nodes' agents", self.peers.shut_down(), 5.0)
            ended = await ending.step("the agent", self._agent.shut_down("tk down"), 8.0) or ended
        if self.cluster.job is not None and not self.cluster.job.foreign:
            ended = await ending.step("the job", self.cluster.job.cancel(), 18.0)
        self.all_ended = ended
        await self.close("tk down", ending)

    async def close(self, why: str, ending: ShutdownSequence | None = None) -> None:
        """Close everything on the laptop; the allocation stays. As bounded as `down`."""
        ending = ending or ShutdownSequence()
        await ending.step("the session's tasks", self._tasks.cancel(), 3.0)
        await ending.step("the debug loops", self.loops.close(), 7.0)
        self.time_limit.close()
        await ending.step("the other nodes' agents", self.peers.close(), 5.0)
        if self._agent is not None:
            await ending.step("the agent's connection", self._agent.close(why), 5.0)
        steps = [
            ("the forwards", self.forwards.close(), 7.0),
            ("the editor port", self.editor_port.close(), 3.0),
        ]
        await ending.together(*steps, *self.files.endings())
        await ending.step("the connection", self.link.close(), 8.0)

    def _entered(self, state: SessionState, detail: str) -> None:
        self.events.add("state", detail, state=state)

    # -- notices from other parts -----------------------------------------

    def _on_pending(self, status: JobStatus) -> None:
        self.pending = status
        why = status.explanation or status.reason or status.native_state
        eta = f", may start {status.start_estimate}" if status.start_estimate else ""
        job = f"job {status.job_id}: " if status.job_id else ""
        self.events.add("scheduler", f"{job}{why}{eta}")
        self.states.become(SessionState.PENDING, f"{job}{why}{eta}")

    def _on_agent_link(self, up: bool, why: str) -> None:
        self.files.node_changed()
        if up:
            self._become_ready()
            if self.cluster.job is not None:
                self.cluster.job.poke()
        else:
            self.states.become(SessionState.RECONNECTING, why)

    def _become_ready(self) -> None:
        self.states.become(SessionState.READY)
        self._tasks.spawn(self.files.resync())

    def _agent_opened(self, channel: Channel, header: dict[str, Any]) -> None:
        if header.get("type") == "debuggee":
            self.loops.debuggee(channel, header)
        elif header.get("type") == "stderr":
            self.execs.stderr_opened(channel, header)
        else:
            channel.close({"error": "unexpected channel"})

    async def _agent_ending(self, params: dict[str, Any]) -> None:
        self._say(f"the agent on the node is ending: {str(params.get('reason'))[:300]}")

    async def _time_limit(self, params: dict[str, Any]) -> None:
        """Take the job's own warning; it may be a minute early, so the scheduler's time counts."""
        if self.time_limit.left_s is None:
            self.time_limit.tells(int(params["left_s"]))

    def _time_is_near(self, left_s: int) -> None:
        text = in_words(left_s)
        self._say(text)
        self.loops.time_is_near(left_s, text)
        self.states.poke()

    async def authenticate(self) -> None:
        """Retry with questions to the user, until the session is ready or over.

        Before it was ready: until it is connected.

        Raises the error of a refused attempt; the next attempt is another call.
        """
        self._connection.arrive()
        try:
            self._connection.retry()
            if self._agent is not None:
                self._agent.retry()
            while self.states.state is not SessionState.READY and not self.states.is_final:
                if self.stuck is not None:
                    raise self.stuck
                if self._agent is None and self._connection.is_up:
                    return  # `up` continues by itself
                await self.states.wait_change()
        finally:
            self._connection.leave()

    def _notice(self, text: str) -> None:
        """Send a message to the user: to `tk up`, to the terminals of loops, and to the log."""
        self._say(text)
        self.loops.notice(text)

    def _agent_is_lost(self, why: str) -> None:
        """Stop reconnecting: the agent's job is over, or waits in the queue again."""
        if self.cluster.ended is None and self._agent is not None:
            self.cluster.ended = why
            self._agent.drop_link(why)
            self._agent.retry()
