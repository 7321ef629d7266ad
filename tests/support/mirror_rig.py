"""The mirror's rig: a real sshd on loopback, real ssh, real rsync, and a pretend laptop."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pathlib
import secrets
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.far_path import far_path
from tests.support.mirror_sshd import SSHD, Sshd, SshRemote, descendants
from tunnelkit.errors import ConnectionFailed, TunnelkitError
from tunnelkit.link.base import ByteStream
from tunnelkit.mirror.api import DigestCheck, FileAgent, MirrorStatus, PassRecord
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.model import MirrorSpec
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.local_agent import LocalAgent
from tunnelkit.session.files.file_agents import HeldFileAgent

needs_rsync = pytest.mark.skipif(
    not os.access(SSHD, os.X_OK) or not shutil.which("rsync"),
    reason="sshd and rsync are needed: apt install openssh-server rsync",
)
needs_fuse = pytest.mark.skipif(
    not shutil.which("sshfs") or not os.access("/dev/fuse", os.R_OK | os.W_OK),
    reason="sshfs and a /dev/fuse that this user may open are needed",
)


async def _at_once() -> None:
    """There is nothing to wait for."""


class RigHost:
    """The host of a mirror, made of functions."""

    def __init__(
        self,
        *,
        agent: Callable[[], FileAgent | None] = lambda: None,
        agent_soon: Callable[[], Awaitable[None]] = _at_once,
        may_write: Callable[[], Awaitable[None]] = _at_once,
        verify: Callable[[], DigestCheck | None] = lambda: None,
        on_change: Callable[[MirrorStatus], None] = lambda status: None,
        on_batch: Callable[[PassRecord], None] = lambda record: None,
        say: Callable[[str], None] = lambda text: None,
        on_warning: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.file_agent, self.file_agent_soon, self.may_write = agent, agent_soon, may_write
        self.say = say
        self._on_warning = on_warning
        self._verify, self._on_change, self._on_batch = verify, on_change, on_batch

    def digest_check(self, remote_root: str) -> DigestCheck | None:
        return self._verify()

    def mirror_changed(self, name: str, status: MirrorStatus) -> None:
        self._on_change(status)

    def mirror_sent(self, name: str, record: PassRecord) -> None:
        self._on_batch(record)

    def mirror_warns(self, name: str, text: str) -> None:
        self._on_warning(text)


async def forget_proofs(mirror: Mirror) -> None:
    """As after a change of the compute node: the next barrier proves every file."""
    assert mirror._manifest is not None
    await asyncio.to_thread(mirror._manifest.forget_proofs)


class Node:
    """A real agent on this machine, as the compute node's, and the session's line to it."""

    def __init__(self, directory: Path, name: str | None = None) -> None:
        """name: of an agent that may be there already."""
        name = name or f"rig-{os.getpid()}-{secrets.token_hex(4)}"
        self._local = LocalAgent(directory, name)
        self._life: asyncio.Task[str] | None = None
        self.client = AgentClient(self._dial, on_channel=lambda channel, header: None, notices={})
        self.host = HeldFileAgent(self.client, is_node=True)
        #: False: no new link can be had
        self.reachable = True

    async def _dial(self) -> ByteStream:
        if not self.reachable:
            raise ConnectionFailed("no route to the node", transient=True)
        return await self._local.dial()

    async def start(self) -> None:
        await self.client.connect()
        self._life = asyncio.create_task(self.client.run())

    async def ended(self) -> None:
        """Returns once the agent is gone."""
        assert self._life is not None
        await asyncio.wait([self._life])
        if not self._life.cancelled():
            self._life.exception()  # how it ended is no news to who killed it

    async def pid(self) -> int:
        return int((await self.client.call("info"))["pid"])

    async def kill(self) -> None:
        """End the agent with -9, for good: a new link would start another one."""
        self.reachable = False
        os.kill(await self.pid(), signal.SIGKILL)

    async def stop(self) -> None:
        if self.reachable:
            with contextlib.suppress(TunnelkitError, TimeoutError):
                async with asyncio.timeout(10):
                    await self.client.call("shutdown", reason="the test is over")
                    await self.client.wait_ended()
        if self._life is not None:
            await cancel_all(self._life)
        await self.client.close("the test is over")


class Rig:
    """A laptop directory, a cluster home, and mirrors between them. node: an agent there."""

    def __init__(self, sshd: Sshd, tmp_path: Path, node: Node | None = None) -> None:
        self.node = node
        self.sshd = sshd
        self.local = tmp_path / "laptop" / "my project"
        self.home = tmp_path / "cluster home"
        self.state = tmp_path / "state"
        self.local.mkdir(parents=True)
        self.home.mkdir(mode=0o700)
        self.remote = SshRemote(sshd, self.home)
        self.far = self.home / "tk" / "my project"
        self.seen: list[MirrorStatus] = []
        self.mirrors: list[Mirror] = []

    def mirror(self, **more: object) -> Mirror:
        exclude = more.pop("exclude", ())
        if self.node is not None:
            more.setdefault("agent", self.file_agent)
            more.setdefault("verify", lambda: self.node_check)
        mirror = Mirror(
            MirrorSpec(str(self.local), "~/tk/my project", tuple(exclude)),  # type: ignore[arg-type]
            self.remote,
            RigHost(on_change=self.seen.append, **more),  # type: ignore[arg-type]
            state_dir=self.state,
        )
        self.mirrors.append(mirror)
        return mirror

    def file_agent(self) -> HeldFileAgent | None:
        node = self.node
        return node.host if node is not None and node.host.is_up else None

    async def node_check(self, expected: Mapping[str, str]) -> list[str]:
        assert self.node is not None
        root = os.path.realpath(self.far)
        call = self.node.client.call("mirror.differing", root=root, expected=dict(expected))
        return [str(path) for path in await call]

    async def started(self, **more: object) -> Mirror:
        mirror = self.mirror(**more)
        await mirror.start()
        return mirror

    def write(self, path: str, text: str = "x\n", *, far: bool = False) -> Path:
        full = (self.far if far else self.local) / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)
        return full

    def equal(self) -> bool:
        return tree(self.local) == tree(self.far)


@pytest.fixture(params=["rsync", "live"])
async def rig(request: pytest.FixtureRequest, sshd: Sshd, tmp_path: Path) -> AsyncIterator[Rig]:
    """Both ways that files can go: by rsync alone, and over the wire to an agent."""
    async with made_rig(sshd, tmp_path, live=request.param == "live") as made:
        yield made


@pytest.fixture
async def rsync_rig(sshd: Sshd, tmp_path: Path) -> AsyncIterator[Rig]:
    async with made_rig(sshd, tmp_path, live=False) as made:
        yield made


@pytest.fixture(params=["rsync", "tar"])
def far_programs(request: pytest.FixtureRequest, sshd: Sshd, tmp_path: Path) -> Iterator[None]:
    """A login host with rsync, and one without."""
    if request.param == "rsync":
        yield
        return
    with far_path(sshd, tmp_path / "bin", without=("rsync",)):
        yield


@pytest.fixture
async def live_rig(sshd: Sshd, tmp_path: Path) -> AsyncIterator[Rig]:
    async with made_rig(sshd, tmp_path, live=True) as made:
        yield made


@contextlib.asynccontextmanager
async def made_rig(sshd: Sshd, tmp_path: Path, *, live: bool) -> AsyncIterator[Rig]:
    node = Node(tmp_path / "agent") if live else None
    made = Rig(sshd, tmp_path, node)
    try:
        if node is not None:
            await node.start()
        yield made
    finally:
        for mirror in made.mirrors:
            await mirror.stop()
        if node is not None:
            await node.stop()


def tree(root: Path) -> dict[bytes, tuple[object, ...]]:
    """All that a person can see of a tree: kinds, modes, contents, link targets, mtimes."""
    found: dict[bytes, tuple[object, ...]] = {}
    top = os.fsencode(root)
    for base, dirs, files in os.walk(top):
        for name in [*dirs, *files]:
            full = os.path.join(base, name)
            with contextlib.suppress(FileNotFoundError):
                # A cookie of the mirror's, or a temporary, comes and goes.
                found[os.path.relpath(full, top)] = _what(full)
    return found


def _what(path: bytes) -> tuple[object, ...]:
    info = os.lstat(path)
    if os.path.islink(path):
        return ("link", os.readlink(path))
    if os.path.isdir(path):
        return ("dir", info.st_mode)
    content = hashlib.sha256(pathlib.Path(os.fsdecode(path)).read_bytes()).hexdigest()
    return ("file", info.st_mode, content, info.st_mtime_ns)


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        await asyncio.sleep(0.02)


def children() -> list[str]:
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_text())
    return found
