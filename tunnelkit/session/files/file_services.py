"""The file services of a session: mirrors, the agent that receives files, and mounts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from tunnelkit.debug.dap.proxy import SourceFiles
from tunnelkit.errors import ConnectionFailed, TimeoutExpired, TunnelkitError
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.messages.agent_calls import MIRROR_DIFFERING
from tunnelkit.mirror.api import DigestCheck, MirrorState, MirrorStatus, PassRecord
from tunnelkit.model import Completed
from tunnelkit.mount.mounts import Mounts
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.scheduler.base import Command
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.exec_streams import ExecStreams
from tunnelkit.session.files import mirror_json
from tunnelkit.session.files.file_agents import FileAgents
from tunnelkit.session.files.mirror_json import Sending, Tell
from tunnelkit.session.files.mirror_set import MirrorSet, named
from tunnelkit.session.files.mounted_paths import check_outside
from tunnelkit.session.files.pods import Pods
from tunnelkit.session.files.remote_host import LinkRemoteHost
from tunnelkit.session.files.source_map import SourceRoot, place_of
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import SessionPaths, state_root
from tunnelkit.session.runtime.shutdown import Step

log = logging.getLogger("tunnelkit.session")
#: Commands of tk that hold a session end within this time, but for a big copy.
_ROOM_S = 3.0

_PROGRESS_EVERY_S = 0.25
#: Attempts to start the mirror if the connection is lost meanwhile.
_STARTS = 5
_NOTICE_S = 1.0


class SessionFiles:
    """Owner of a session's mirrors and mounts. For the mirrors it is their `MirrorHost`.

    only_on_nodes: True if there is no login host: the mirror starts with the node's agent.
    node: returns the node that has the mirror's files; None if the login host has them.
    agent: returns the node's agent, None while there is none. dial: opens a stream to
    `agent files` on the login host. may_write: returns once the cluster is known to be usable.
    landed: called with some paths of each batch that has arrived. repair: see AgentClient.
    by_agent, ready: see LinkRemoteHost. pods: where each node has a disk of its own.
    """

    def __init__(
        self,
        launch: LaunchSpec,
        paths: SessionPaths,
        link: Link,
        *,
        only_on_nodes: bool,
        node: Callable[[], str | None],
        agent: Callable[[], AgentClient | None],
        dial: Callable[[], Awaitable[ByteStream]],
        may_write: Callable[[], Awaitable[None]],
        say: Callable[[str], None],
        changed: Callable[[], None],
        tell: Tell,
        sending: Sending,
        landed: Callable[[Sequence[str]], None],
        repair: Callable[[], Awaitable[None]] | None = None,
        by_agent: Callable[[], ExecStreams | None] = lambda: None,
        ready: Callable[[Command, float], Awaitable[Completed | None]] | None = None,
        pods: Pods | None = None,
    ) -> None:
        settings, remote = launch.settings, LinkRemoteHost(link, node, by_agent, ready)
        self._destination = remote.destination
        self._only_on_nodes = only_on_nodes
        self._node_came = asyncio.Event()
        self._agent = agent
        self.say = say
        self.may_write = may_write
        self._changed = changed
        self._tell = tell
        self._sending = sending
        self._landed = landed
        self._link = link
        self._hosts = FileAgents(
            dial, arrived=self._agent_arrived, has_room=self._has_room, repair=repair
        )
        self.file_agent, self.file_agent_soon = self._hosts.current, self._hosts.soon
        self.node_changed = self._hosts.node_changed
        self.mirrors: MirrorSet | None = None
        if settings.mirror.enabled and pods is None:
            self.mirrors = MirrorSet(
                settings.mirror_specs(),
                remote,
                self,
                state_dir=paths.mirror_state,
                take_over=launch.take_over,
            )
        elif settings.mirror.enabled and pods is not None:
            self.mirrors = self._in_all_pods(pods, launch, paths, remote)
        self.mounts = Mounts(
            remote, state_dir=state_root(), owner=paths.id, say=say, changed=changed
        )

    def _in_all_pods(
        self, pods: Pods, launch: LaunchSpec, paths: SessionPaths, remote: LinkRemoteHost
    ) -> MirrorSet:
        # Sessions by ssh need none of it.
        from tunnelkit.mirror.watch.shared_source import SharedWatches
        from tunnelkit.session.files.pod_files import PodFiles
        from tunnelkit.session.files.pods import PodWays

        ways = PodWays(
            self._link,
            launch.settings.mirror_specs(),
            paths.mirror_state,
            take_over=launch.take_over,
            prepared=self.may_write,
            changed=self._changed,
            tell=self._tell,
            warn=lambda text: self.mirror_warns("", text),
            watch=SharedWatches().watch,
        )
        return PodFiles(remote, self, pods, ways)

    # -- the way up -------------------------------------------------------

    async def look(self) -> None:
        """Begin the initial scans. Raises MirrorError for directories that can't be mirrored."""
        if self.mirrors is not None:
            await self.mirrors.look()

    async def keep_agent(self) -> None:
        """Keep an agent on the login host while there is none on a node; until cancelled."""
        if self.mirrors is not None and not self._only_on_nodes:
            await self._hosts.run()

    async def start(self) -> None:
        """Start the mirrors, and report the first copy. Raises as `MirrorSet.start`."""
        if self.mirrors is None:
            return
        begin = time.monotonic()
        showing = asyncio.create_task(self._show_sending(self.mirrors))
        try:
            await self.mirrors.start()
        finally:
            await cancel_all(showing)
        for mirror in self.mirrors.all:
            name, status = mirror.spec.name, mirror.status()
            if mirror.taken_from is not None:
                self.say(f"mirror: {named(name, f'taken over from {mirror.taken_from}')}")
            if status.state in (MirrorState.HALTED, MirrorState.CONFLICT):
                self.say(f"mirror: {named(name, status.describe())}")
            there = f"{self._destination()}:{mirror.remote_root}"
            text = mirror_json.first_copy(status, time.monotonic() - begin)
            self.say(f"mirror: {named(name, f'{text} on {there}')}")
        for text in self.mirrors.news():
            self.mirror_warns("", text)

    async def start_patiently(self, wait_up: Callable[[], Awaitable[None]]) -> None:
        """Call `start`, again if the connection is cut: the job request survives that, too.

        wait_up: returns once the link is up.
        """
        if self._only_on_nodes:
            await self._node_came.wait()
        for left in reversed(range(_STARTS)):
            try:
                await self.start()
                return
            except ConnectionFailed as error:
                if not error.transient or not left:
                    raise
                log.info("the mirror's start: %s; once more", error.one_line())
            await asyncio.sleep(_NOTICE_S)  # the link keeper may not have noticed the cut yet
            await wait_up()

    async def _show_sending(self, mirrors: MirrorSet) -> None:
        """Show the progress of the first copy, until cancelled: it is polled, it has no event."""
        shown = False
        try:
            while True:
                await asyncio.sleep(_PROGRESS_EVERY_S)
                progress = mirrors.progress()
                if progress is not None:
                    shown = True
                    self._sending(progress.to_json())
        finally:
            if shown:
                self._sending({})

    # -- life -------------------------------------------------------------

    def node_is(self, client: AgentClient) -> None:
        """Send files to the node's agent from now on."""
        self._hosts.node_is(client)
        self._node_came.set()

    async def node_lost(self) -> None:
        """Stop the mirrors: the node in the place of a lost one has a disk of its own.

        Call `start` once it is there."""
        if self.mirrors is not None:
            await self.mirrors.stop()

    def follow_pods(self) -> None:
        """Take the session's pods as they are now; the first one stays."""
        if self.mirrors is not None:
            self.mirrors.follow()

    async def leave_pods(self) -> None:
        """End the mirrors in all pods but the first, while their agents are there."""
        if self.mirrors is not None:
            await self.mirrors.stop_others()

    async def resync(self) -> None:
        """Resync the mirrors after the link has come back; failures are retried and shown."""
        if self.mirrors is not None:
            with contextlib.suppress(TunnelkitError):
                await self.mirrors.resync()

    async def mount(self, remote_dir: str, mountpoint: Path) -> None:
        """Mount a remote directory here by sshfs; the session's end unmounts it."""
        for mirror in self.mirrors.all if self.mirrors is not None else ():
            check_outside(mountpoint, mirror.local_root)
        await self.mounts.mount(remote_dir, mountpoint)

    def place(self) -> SourceFiles | None:
        """Return the map of an editor's files to the node; None if there is none."""
        mirrored = self.mirrors.all if self.mirrors is not None else ()
        roots: list[SourceRoot] = [
            *(one for one in mirrored if one.remote_root),
            *self.mounts.mappings(),
        ]
        if not roots:
            return None
        agent = self._agent()
        is_up = agent is not None and agent.is_up
        names = {one.remote_root for one in mirrored}
        # A mounted file is the same at both ends.
        return place_of(
            roots, lambda root: self.digest_check(root) if is_up and root in names else None
        )

    def endings(self) -> list[Step]:
        """Return the steps of the shutdown."""
        steps: list[Step] = [("the mounts", self.mounts.close(), 7.0)]
        if self.mirrors is not None:
            steps.append(("the mirror", self.mirrors.stop(), 9.0))
        return steps

    async def _has_room(self) -> bool:
        """Return False if the login host gives no session now; see FileAgents."""
        try:
            await self._link.run(["true"], timeout_s=_ROOM_S)
        except TimeoutExpired as error:
            return error.cause is None  # it gave one, and is slow
        return True

    def _agent_arrived(self) -> None:
        if self.mirrors is not None:
            self.mirrors.look_again()

    # -- as the mirrors' host ---------------------------------------------

    def mirror_changed(self, name: str, status: MirrorStatus) -> None:
        """Tell those who watch the new status."""
        self._changed()
        self._tell(mirror_json.state_event(name, status))

    def mirror_sent(self, name: str, batch: PassRecord) -> None:
        """Tell those who watch, and the loops, what has arrived."""
        self._tell(mirror_json.batch_event(name, batch))
        self._landed(batch.paths)

    def mirror_warns(self, name: str, text: str) -> None:
        """Show the user a warning."""
        text = named(name, text)
        self.say(f"warning: {text}")
        self._tell(mirror_json.warning_event(text))

    def digest_check(self, root: str) -> DigestCheck | None:
        """Return the check by which the node reads files below a remote root; None without node.

        While only the node's link is lost nothing is proven: the caller waits.
        """
        agent = self._agent()
        if agent is None:
            return None

        async def check(expected: Mapping[str, str]) -> list[str]:
            return await MIRROR_DIFFERING.ask(agent, {"root": root, "expected": dict(expected)})

        return check
