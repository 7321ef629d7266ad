"""One session: the resources of one `tk up`, and its way through the states (runtime/state.py).

It joins the rooms and owns their tasks; work of a single room is done in that room.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.errors import TunnelkitError
from tunnelkit.model import job_words
from tunnelkit.session.agent.client import AgentClient, AgentGone
from tunnelkit.session.agent.install import pack
from tunnelkit.session.agents import SessionAgents
from tunnelkit.session.allocation.allocated import Allocated
from tunnelkit.session.allocation.launch_record import LaunchRecord
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.backends.backend import Backend
from tunnelkit.session.comeback import Comeback
from tunnelkit.session.connection.login_connection import LoginConnection
from tunnelkit.session.debugging.attached_nodes import AttachedNodes
from tunnelkit.session.debugging.loops import Loops
from tunnelkit.session.debugging.port_fallback import open_near, session_ports
from tunnelkit.session.files.file_services import SessionFiles
from tunnelkit.session.files.pods import Pods
from tunnelkit.session.forwards import SessionForwards
from tunnelkit.session.host import SessionHost
from tunnelkit.session.job.time_limit import TimeLimit, in_words
from tunnelkit.session.job_monitor import JobMonitor
from tunnelkit.session.runtime.background_tasks import BackgroundTasks, side_by_side
from tunnelkit.session.runtime.event_log import EventLog
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import SessionPaths, job_name
from tunnelkit.session.runtime.preload import preload
from tunnelkit.session.runtime.shutdown import ShutdownSequence
from tunnelkit.session.runtime.state import SessionState, StateMachine
from tunnelkit.session.why.waiting_words import WaitingWords

log = logging.getLogger("tunnelkit.session")


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
        self._say = host.say
        #: True once a job of this session may exist.
        self.reached_cluster = False
        #: True after `down` if the end of the allocation is certain.
        self.all_ended = False
        self.settled = asyncio.Event()
        self.events = EventLog(paths.events)
        self.record = LaunchRecord(launch, paths, host.say)
        self.states = StateMachine(host.changed, self.events.add)
        self._tasks = BackgroundTasks()
        self._keeping: asyncio.Task[None] | None = None
        self._connection = LoginConnection(
            backend,
            settings,
            paths,
            prompter=host.prompter,
            present=host.present,
            asks_nodes=lambda: self.cluster.asks_nodes,
            notice=self._notice,
            lost=lambda why, error: self.states.become(SessionState.RECONNECTING, why, error),
            changed=self._stuck_changed,
        )
        self.link = self._connection.link
        self.cluster = self._make_cluster(backend, host)
        self.waiting = WaitingWords(self.cluster, self._tasks, self._show_pending, host.say)
        self.time_limit = TimeLimit(paths.state / "time-limit", self._time_is_near)
        self.agents = self._make_agents()
        self.editor_port = EditorPort(settings.debug.port)
        self.loops = Loops(
            self.agent,
            self.editor_port,
            settings.debug,
            place=lambda: self.files.place(),
            parts=self.agents.parts,
            log=paths.loop_log,
        )
        self.attached_nodes = AttachedNodes(paths.state / "attached-nodes")
        self.forwards = SessionForwards(
            self.link, self.agent, lambda: self.cluster.node, self.cluster.link_forwards
        )
        self.files = self._make_files(backend, host)
        self.comeback = self._make_comeback()
        self._watch = JobMonitor(
            self.cluster, self.time_limit, self._agent_is_lost, self.comeback.told, self._say
        )

    def _make_cluster(self, backend: Backend, host: SessionHost) -> AllocationManager:
        return AllocationManager(
            self.link,
            self.launch.settings,
            backend,
            name=job_name(self.launch.settings.project_dir, self._paths.id),
            say=host.say,
            record=self.events.add,
            cancelled=self._paths.cancelled,
            wait_link=self._connection.keeper.wait_up,
            attach_job=self.launch.attach_job,
            launch_record=self.record,
        )

    def _make_agents(self) -> SessionAgents:
        return SessionAgents(
            self.cluster,
            self.states,
            say=self._say,
            debuggee=lambda channel, header: self.loops.debuggee(channel, header),
            time_limit=self.time_limit.job_tells,
            on_link=self._on_agent_link,
            on_stuck=partial(self._connection.on_stuck, "agent"),
        )

    def _make_files(self, backend: Backend, host: SessionHost) -> SessionFiles:
        return SessionFiles(
            self.launch,
            self._paths,
            self.link,
            agent=lambda: None if self.states.state is SessionState.ENDED else self.agents.client,
            only_on_nodes=not backend.has_login_host,
            node=lambda: self.cluster.files_node,
            dial=self.cluster.setup.files_stream,
            repair=self.cluster.repair,
            may_write=self.cluster.wait_prepared,
            say=host.say,
            changed=host.changed,
            tell=host.tell,
            sending=host.sending,
            landed=self.loops.files_changed,
            # Where each stream of the link is costly, the agent runs the mirror's commands.
            by_agent=lambda: self.agents.execs_if_up if backend.brings_agent else None,
            ready=self.cluster.setup.shells.look,
            pods=None if backend.shared_home else self._pods(),
        )

    def _pods(self) -> Pods:
        cluster = self.cluster

        def first() -> str:
            return cluster.node or ""

        return Pods(
            self.agents.peers,
            first,
            lambda: cluster.allocated.instances.get(first(), ""),
            lambda: cluster.allocated.others,
            lambda: cluster.agent_changed(False),
        )

    def _make_comeback(self) -> Comeback:
        parts = (self.cluster, self.agents, self.loops, self.forwards, self.files, self.time_limit)
        about = (self.states, self.waiting, self._say, self._reach_agent)
        return Comeback(*parts, *about, self._connection.keeper.wait_up)

    @property
    def stuck(self) -> TunnelkitError | None:
        """The error that only the user can solve (`tk auth`), or None."""
        return self._connection.stuck

    def agent(self) -> AgentClient:
        """Return the client of the agent. Raises NoSessionError, or the session's failure."""
        return self.agents.first()

    # -- the way up -------------------------------------------------------

    async def up(self) -> None:
        """Go through all states until ready. Raises TunnelkitError; then call `down`."""
        self._connection.gate.arrive(coming=True)
        try:
            taken = [one.bind_port for one in self.launch.settings.all_forwards]
            moved = open_near(self.editor_port, but=taken)
            ports = self._paths.state / "editor-ports"
            self.loops.ports.before = session_ports(ports, self.editor_port.port)
            await self.files.look()  # before the user is asked for a password
            self.states.become(SessionState.CONNECTING, self.link.name)
            self._tasks.spawn(pack())
            await self._connection.keeper.open()
            if moved is not None:
                self._say(moved)  # only now, when `tk up` has connected to the control socket
            # From here on it may take hours in a queue, and the user may have left.
            self._connection.gate.arrive()
            self._keeping = self._tasks.spawn(self._connection.keeper.run())
            self.files.mounts.adopt()
            self.states.become(SessionState.PREPARING, self.link.name)
            self._tasks.spawn(self.files.keep_agent())
            # The first failure counts: don't wait in the queue for a mirror that can't start.
            await side_by_side(
                self.files.start_patiently(self._connection.keeper.wait_up), self._get_agent()
            )
            await self.forwards.open_all(self.launch.settings.all_forwards, self._say)
            self._tasks.spawn(self.cluster.learn_names())
            job = self.cluster.job
            self._tasks.spawn(preload("" if job is None else job.scheduler.name))
        except TunnelkitError as error:
            self.states.fail(SessionState.FAILED, error)
            raise
        finally:
            await self.waiting.end()
            self._connection.gate.leave()
            self.settled.set()
        if self.agents.is_up:  # else its return, or `run`, says what follows
            self.states.become(SessionState.READY)

    async def _get_agent(self) -> None:
        async with self.cluster.setup.shells:
            await self.cluster.prepare()
            self.reached_cluster = True
            self.states.become(SessionState.PENDING)
            await self.cluster.occupy(self.launch.node, self.waiting, self._reach_agent)

    async def _reach_agent(self, allocated: Allocated) -> None:
        await self.waiting.end()
        self.time_limit.begins(allocated.job_id, allocated.time_left_s)
        self.states.become(SessionState.STARTING, ", ".join(allocated.nodes) or self.link.name)
        self.files.node_is(await self.agents.reach(allocated))
        await self._watch.begin(self._tasks.spawn)
        self._tasks.spawn(self.agents.peers.start())
        if not self.cluster.is_new or self.comeback.count:  # else its agent has no loops
            await self._adopt_loops(self.agents.node)
        self._tasks.spawn(self.attached_nodes.adopt(self._adopt_loops))

    async def _adopt_loops(self, node: str) -> int:
        adopted = await self.loops.adopt(await self.agents.loops_on(node), node)
        if adopted:
            self._say(f"took over {adopted} debug loop(s)")
        return adopted

    # -- life -------------------------------------------------------------

    async def run(self) -> None:
        """Keep the session up until the allocation ends; return in state `ended`."""
        while True:
            cause: TunnelkitError | None = None
            try:
                why = await self.agents.over()
            except AgentGone as error:
                why, cause = error.one_line(), error
            # If the agent is gone, the job has mostly ended; the scheduler knows the reason.
            await self._connection.keeper.wait_login()
            fate = await self._watch.fate()
            if not fate.back or self.cluster.job is None:
                break
            try:
                await self.comeback.go_on(self.cluster.job, fate, why)
                if self.agents.is_up:
                    self._become_ready()
                again = job_words(self.cluster.job.job_id or "")
                self._say(f"{again} runs again, on {self.cluster.node}")
            except TunnelkitError as error:
                why, cause = error.one_line(), error
                break
        await self._tasks.cancel()
        await self._end(fate.ended or why, cause)

    async def _end(self, why: str, cause: TunnelkitError | None) -> None:
        said = f"the allocation is over: {why}"
        self.events.add("scheduler", why, error=cause)
        self.states.become(SessionState.ENDED, why)  # before a loop's terminal ends and asks
        self._say(said)
        await self.loops.close(said)
        self.time_limit.close()
        # An agent that ended unheard sent no BYE: its runs, shells and calls would wait on.
        await self.agents.are_over(said)
        last = await self._watch.last_state()
        if last is not None:
            self.events.add("scheduler", last)
            self.states.become(SessionState.ENDED, last)

    async def break_off(self, failure: TunnelkitError) -> None:
        """Enter state `ended` after an error of tk itself; every command gets `failure`.
        The allocation and its processes stay: the next session can take them over."""
        self.states.fail(SessionState.ENDED, failure)
        for ending in (self._tasks.cancel(), self.loops.close(), self.agents.break_off()):
            try:
                await ending
            except Exception:
                log.exception("what failed could not be ended in order")

    async def down(self, ending: ShutdownSequence | None = None) -> None:
        """End everything, the allocation too; `all_ended` is True if that is certain.

        Idempotent. Takes little longer than `ending` allows, even if something hangs.
        """
        # After `break_off` the allocation is not over.
        over = self.states.state is SessionState.ENDED and self.states.failure is None
        ending = ending or ShutdownSequence()
        self.states.become(SessionState.CLOSING)
        # But the link is kept: one that is cut just now may come back in time.
        await ending.step("the session's tasks", self._tasks.cancel(but=self._keeping), 3.0)
        await ending.step("the debug loops on the node", self.loops.stop_all(), 7.0)
        # Else they would start the agents in their pods again.
        await ending.step("the other pods' files", self.files.leave_pods(), 7.0)
        ended = await self.agents.shut_down(ending) or over
        if self.cluster.job is not None and not self.cluster.job.foreign:
            ended = await ending.step("the job", self.cluster.job.cancel(), 18.0)
        elif ended:
            await ending.step("tk's files in the pods", self.cluster.leave(), 8.0)
        self.all_ended = ended
        await self.close("tk down", ending)

    async def close(self, why: str, ending: ShutdownSequence | None = None) -> None:
        """Close everything on the laptop; the allocation stays. As bounded as `down`."""
        ending = ending or ShutdownSequence()
        await ending.step("the session's tasks", self._tasks.cancel(), 3.0)
        await ending.step("the debug loops", self.loops.close(), 7.0)
        self.time_limit.close()
        await self.agents.close(why, ending)
        steps = [
            ("the forwards", self.forwards.close(), 7.0),
            ("the editor port", self.editor_port.close(), 3.0),
        ]
        await ending.together(*steps, *self.files.endings())
        await ending.step("the connection", self.link.close(), 8.0)

    # -- notices from other parts -----------------------------------------

    def _show_pending(self, text: str) -> None:
        self.events.add("scheduler", text)
        self.states.become(SessionState.PENDING, text)

    def _on_agent_link(self, up: bool, why: str, error: TunnelkitError | None) -> None:
        self.files.node_changed()
        self.cluster.agent_changed(up)
        if not up:
            self.states.become(SessionState.RECONNECTING, why, error)
            self._tasks.spawn(self.link.doubt())
        elif self.settled.is_set() and not self.comeback.busy:
            self._become_ready()
        else:
            self.states.become(SessionState.STARTING, self.agents.node)

    def _become_ready(self) -> None:
        self.states.become(SessionState.READY)
        self._tasks.spawn(self.files.resync())

    def _time_is_near(self, left_s: int) -> None:
        text = in_words(left_s)
        self._say(text)
        self.loops.time_is_near(left_s, text)
        self.states.poke()

    async def authenticate(self) -> None:
        """Retry with questions to the user, until the session is ready or over.

        Before it was ready: until it is connected. Raises the error of a refused attempt; the next
        attempt is another call.
        """
        self._connection.gate.arrive()
        try:
            self._connection.retry()
            if self.agents.client is not None:
                self.agents.client.retry()
            keeper = self._connection.keeper
            while not self.states.is_final:
                if self.states.state is SessionState.READY and not keeper.needs_login:
                    break
                if self.stuck is not None:
                    raise self.stuck
                if self.agents.client is None and keeper.is_up and not keeper.needs_login:
                    return  # `up` continues by itself
                await self.states.wait_change()
            await self.agents.peers.retry()
        finally:
            self._connection.gate.leave()

    def _notice(self, text: str) -> None:
        """Send a message to the user: to `tk up`, to the terminals of loops, and to the log."""
        self._say(text)
        self.loops.notice(text)

    def _stuck_changed(self) -> None:
        if self.stuck is not None:
            self.events.add("error", self.stuck.one_line(), error=self.stuck)
        is_back = self._connection.keeper.is_up and self.states.state is SessionState.RECONNECTING
        if is_back and self.agents.is_up and self.settled.is_set() and not self.comeback.busy:
            self._become_ready()  # the streams have outlived it
        self.states.poke()

    def _agent_is_lost(self, why: str) -> None:
        """Stop reconnecting: the agent's job is over, or waits in the queue again."""
        client, allocated = self.agents.client, self.cluster.allocated
        if allocated.ended is None and client is not None:
            allocated.ended = why
            client.drop_link(why)
            client.retry()
