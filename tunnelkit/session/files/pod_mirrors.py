"""The mirrored files in one further pod: mirrors of its own, or proofs of what is on a volume."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from tunnelkit.errors import MirrorError, TimeoutExpired, TunnelkitError, UsageError
from tunnelkit.mirror.api import MirrorState, MirrorStatus, SyncReport
from tunnelkit.mirror.remote.edits import NoConflict
from tunnelkit.mirror.remote.root import RootUnusable
from tunnelkit.model import MirrorSpec
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.files import mirror_json
from tunnelkit.session.files.mirror_set import MirrorSet, named_error
from tunnelkit.session.files.pod_host import PodHost
from tunnelkit.session.files.pods import Pods, PodWays
from tunnelkit.session.files.remote_host import LinkRemoteHost
from tunnelkit.session.files.shared_roots import RootWriter, SharedRoot, SharedRoots
from tunnelkit.session.files.volume_proof import VolumeProof
from tunnelkit.session.runtime.status import MirrorInfo

_T = TypeVar("_T")
log = logging.getLogger("tunnelkit.session")
#: Pauses between attempts to start; a barrier asks for one at once.
_AGAIN_S = (2.0, 60.0)
#: Pauses between questions for a pod whose agent can't be reached: it may have been replaced.
_WHERE_S = (0.5, 30.0)
#: Limit of the proof that a start makes ahead of the first barrier.
_AHEAD_S = 600.0
_WAY_OUT = "mount a volume that all pods share there, or name another directory in [mirror] remote"


class PodMirrors:
    """The files in one pod. Call `begin`; `stop` at the end.

    instance: which pod of its name it is. undone: called with the pod's name once its mirrors have
    ended, on which other pods' proofs may rest.
    """

    def __init__(
        self,
        pod: str,
        instance: str,
        ways: PodWays,
        pods: Pods,
        roots: SharedRoots,
        undone: Callable[[str], None],
    ) -> None:
        self.pod = pod
        self.instance = instance
        self._ways = ways
        self._pods = pods
        self._agents = agents = pods.agents
        self._roots = roots
        self._undone = undone
        self._host = PodHost(pod, prepared=ways.prepared, changed=ways.changed, tell=ways.tell)
        self._remote = LinkRemoteHost(ways.link, lambda: pod, lambda: agents.execs_if_up(pod))
        #: Of the roots that are the pod's own; None if there are none, or before the start.
        self.mirrors: MirrorSet | None = None
        self._shared: dict[str, SharedRoot] = {}
        self._proofs: dict[str, VolumeProof] = {}
        #: Shared roots that this pod has not read yet, and why if that was tried.
        self._unproven: dict[str, str] = {}
        self._failure: TunnelkitError | None = None
        self._is_started = False
        self._is_wanted = False
        #: How often the agent was reached, and up to which time all files were checked.
        self._ups = self._seen_ups = 0
        self._told = ""
        self._life: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        #: Set once this pod is gone, or another has its name.
        self.over = asyncio.Event()
        #: The check of all files that a new link needs, or the first proof of a volume.
        self._check: asyncio.Task[None] | None = None

    @property
    def rests_on(self) -> frozenset[str]:
        """The pods whose mirrors write roots of this one."""
        return frozenset(one.writer.pod for one in self._shared.values())

    @property
    def is_up(self) -> bool:
        """True while the pod's agent can be reached."""
        return self._host.is_up

    # -- life -------------------------------------------------------------

    def begin(self) -> None:
        """Start, and go on trying until `stop`."""
        self._life = asyncio.create_task(self._live(), name=f"tk-files-{self.pod}")

    async def stop(self) -> None:
        """End the mirrors. Idempotent."""
        tasks, self._life, self._asking = (self._life, self._asking), None, None
        await cancel_all(*(one for one in tasks if one is not None))
        await self._undo()
        self._host.agent_is(None)

    async def start_anew(self) -> None:
        """Decide again which roots are the pod's own."""
        await self.stop()
        self.begin()

    def link_changed(self) -> None:
        """Note that the pod's agent came, went, or lost its link."""
        self._host.agent_is(self._agents.current(self.pod))
        self._ups += self._host.is_up
        self._ways.changed()
        asks = self._asking is not None and not self._asking.done()
        if self._is_started and not self._host.is_up and not asks:
            self._asking = asyncio.create_task(self._ask_where_it_is())

    async def _live(self) -> None:
        pause_s = _AGAIN_S[0]
        while True:
            self._is_wanted = False
            try:
                await self._start()
                pause_s = _AGAIN_S[0]
                await self._stay()
            except TunnelkitError as error:
                self._fail(error)
            except Exception as error:
                # A defect must not end the pod's files in silence.
                log.exception("the files in %s", self.pod)
                self._fail(
                    MirrorError(
                        "the files can't be sent there",
                        cause=f"{type(error).__name__}: {error}",
                        hint="if that happens often, please report it: tk bugreport",
                    )
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._host.until(lambda: self._is_wanted)
            pause_s = min(2 * pause_s, _AGAIN_S[1])

    async def _start(self) -> None:
        ways = self._ways
        await self._agents.client(self.pod)
        self.link_changed()
        starting: asyncio.Task[None] | None = None
        try:
            async with self._roots.turn:
                shared = await self._roots.shared_by(self._remote, ways.specs)
                own = [spec for spec in ways.specs if spec.name not in shared]
                if own:
                    starting = await self._begin_own(own)
                self._share(shared)
            if starting is not None:
                await starting
        except BaseException:
            if starting is not None:
                await cancel_all(starting)
            await self._undo()
            raise
        self._failure, self._is_started, self._told = None, True, ""
        self._seen_ups = self._ups
        self._check = asyncio.create_task(self._prove_ahead())
        self._host.poke()
        ways.changed()

    async def _begin_own(self, own: Sequence[MirrorSpec]) -> asyncio.Task[None]:
        """Start mirrors; return once their roots are there, for others to look at."""
        ways, self._host.roots = self._ways, 0
        mirrors = self.mirrors = MirrorSet(
            own,
            self._remote,
            self._host,
            state_dir=ways.state_dir,
            take_over=ways.take_over,
            watch=ways.watch,
            instance=lambda: self.instance,
        )
        starting = asyncio.create_task(mirrors.start())
        starting.add_done_callback(lambda task: self._host.poke())
        try:
            await self._host.until(lambda: self._host.roots == len(own) or starting.done())
        except BaseException:
            await cancel_all(starting)
            raise
        for mirror in mirrors.all:
            if mirror.remote_root:
                self._roots.add(RootWriter(self.pod, self._remote, mirror))
        return starting

    def _share(self, shared: Mapping[str, SharedRoot]) -> None:
        self._shared = dict(shared)
        for name, one in shared.items():
            check = self._host.digest_check(one.root)
            self._proofs[name] = VolumeProof(one.writer.mirror.sent, check)
            self._unproven[name] = ""

    async def _undo(self) -> None:
        check, self._check = self._check, None
        if check is not None:
            await cancel_all(check)
        mirrors, self.mirrors = self.mirrors, None
        self._is_started = False
        self._shared, self._proofs, self._unproven = {}, {}, {}
        if mirrors is not None:
            self._roots.drop(self.pod)
            await mirrors.stop()
            self._undone(self.pod)

    async def _stay(self) -> None:
        """Stay while the pod is there: reach its agent again, and check all files each time."""
        agents, host = self._agents, self._host
        while True:
            await host.until(
                lambda: self._ups != self._seen_ups or agents.current(self.pod) is None
            )
            if agents.current(self.pod) is None:
                await self._reach_again()
            self._seen_ups = self._ups
            if self._check is not None:
                await cancel_all(self._check)
            self._check = asyncio.create_task(self._check_all())

    async def _check_all(self) -> None:
        if self.mirrors is not None:
            with contextlib.suppress(TunnelkitError):
                await self.mirrors.resync()
        await self._prove_ahead()

    async def _ask_where_it_is(self) -> None:
        pause_s = _WHERE_S[0]
        while not self._host.is_up:
            self._pods.look()
            client = self._agents.current(self.pod)
            if client is not None:
                client.retry()  # "not found" ends the attempts, and may be true of a moment only
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _WHERE_S[1])

    async def _reach_again(self) -> None:
        """Connect to an agent that is gone, or to the one in its place; until it is there."""
        pause_s = _AGAIN_S[0]
        while True:
            try:
                await self._agents.client(self.pod)
                return
            except TunnelkitError as error:
                log.info("%s: %s", self.pod, error.one_line())
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_S[1])

    async def _prove_ahead(self) -> None:
        """Read a shared volume once before a barrier has to."""
        for name in self._proofs:
            try:
                await self._proofs[name].prove(time.monotonic() + _AHEAD_S, _AHEAD_S)
            except TunnelkitError as error:
                self._unproven[name] = error.one_line()
            else:
                self._unproven.pop(name, None)
            self._ways.changed()

    def _fail(self, error: TunnelkitError) -> None:
        failure = named_error(self.pod, error)
        if isinstance(error, RootUnusable):
            failure.hint = _WAY_OUT
        self._failure = failure
        self._host.poke()
        self._ways.changed()
        text = failure.one_line()
        if text != self._told and not isinstance(error, UsageError):  # the pod has left
            self._told = text
            self._ways.warn(f"{text}; {failure.hint}" if failure.hint else text)

    # -- all that a barrier needs -----------------------------------------

    async def barrier(
        self, left_s: float, timeout_s: float, *, allow_deletes: bool = False
    ) -> SyncReport:
        """Run `MirrorSet.barrier` for the pod's own roots. Errors begin with the pod's name.

        left_s: the time left of `timeout_s`, the caller's limit.
        """
        deadline = time.monotonic() + left_s
        await self._started(left_s, timeout_s)
        if self.mirrors is None:
            return SyncReport(by_node=True)
        # Rounded up: messages name it.
        left_s = math.ceil(10 * max(0.0, deadline - time.monotonic())) / 10
        return await self._with_name(self.mirrors.barrier(left_s, allow_deletes=allow_deletes))

    async def prove(self, deadline: float, timeout_s: float) -> int:
        """Have the pod read back what other pods' mirrors have written; see `VolumeProof.prove`."""
        count = 0
        for name, proof in self._proofs.items():
            count += await self._with_name(proof.prove(deadline, timeout_s))
            self._unproven.pop(name, None)
        return count

    async def resolve(self, path: str, *, theirs: bool, timeout_s: float) -> SyncReport:
        """Run `MirrorSet.resolve`. Raises NoConflict for a path in no root of the pod's own."""
        if self.mirrors is None or self.mirrors.holding(path) is None:
            raise NoConflict(
                f"{self.pod}: {path} is in no conflict", hint="`tk status` lists the conflicts"
            )
        mirrors = self.mirrors
        return await self._with_name(mirrors.resolve([path], theirs=theirs, timeout_s=timeout_s))

    async def _started(self, left_s: float, timeout_s: float) -> None:
        """Wait for the start; if it has failed, for the next attempt, which begins at once."""
        if self._is_started:
            return
        before = self._failure
        self._is_wanted = True
        self._host.poke()
        try:
            async with asyncio.timeout(left_s):
                await self._host.until(lambda: self._is_started or self._failure is not before)
        except TimeoutError:
            raise before or TimeoutExpired(
                f"{self.pod}: the files are not there after {timeout_s:g} s",
                cause="the first copy is not done",
                hint="`tk status` shows how far it is",
                transient=True,
            ) from None
        if not self._is_started and self._failure is not None:
            raise self._failure

    async def _with_name(self, work: Awaitable[_T]) -> _T:
        """Await `work`; an error gets the pod's name."""
        try:
            return await work
        except TunnelkitError as error:
            raise named_error(self.pod, error) from None

    # -- status -----------------------------------------------------------

    def describe(self) -> list[MirrorInfo]:
        """Return all roots in this pod for `tk status --json`."""
        own = {one.spec.name: one for one in (self.mirrors.all if self.mirrors else ())}
        return [
            mirror_json.describe(own[spec.name], self.pod)
            if spec.name in own and self._failure is None
            else self._without_mirror(spec)
            for spec in self._ways.specs
        ]

    def _without_mirror(self, spec: MirrorSpec) -> MirrorInfo:
        shared, why = self._shared.get(spec.name), self._unproven.get(spec.name)
        local, remote = spec.local_dir, spec.remote_dir
        if self._failure is not None:
            text = self._failure.one_line().removeprefix(f"{self.pod}: ")
            status = MirrorStatus(MirrorState.STALE, reason=text)
        elif shared is None:
            status = MirrorStatus(MirrorState.STARTING)
        else:
            writer = shared.writer
            local, remote, there = writer.mirror.local_root, shared.root, writer.mirror.status()
            state, reason = MirrorState.IN_SYNC, f"on a volume, written by {writer.pod}"
            if not self._host.is_up:
                state, reason = MirrorState.STALE, "its agent can't be reached"
            elif why is not None:
                state = MirrorState.STALE if why else MirrorState.STARTING
                reason = why or reason
            status = MirrorStatus(state, there.files, there.bytes, reason=reason)
        return mirror_json.without_mirror(spec, status, self.pod, local=local, remote=remote)
