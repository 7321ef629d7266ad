"""The context of the checks: settings, session if one is up, access to the cluster."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from tunnelkit.config.schema import Settings
from tunnelkit.errors import ConnectionFailed, TunnelkitError
from tunnelkit.link.base import Link, LinkSetup, Prompter
from tunnelkit.model import Completed
from tunnelkit.session.doctor.remote_access import LinkAccess, RemoteAccess, SessionAccess
from tunnelkit.session.runtime.blocking_client import ask, is_alive
from tunnelkit.session.runtime.control_calls import Status
from tunnelkit.session.runtime.paths import SessionPaths
from tunnelkit.session.runtime.status import SessionStatus

#: A live session answers at once; a stopped one never does.
_ASK_S = 5.0


class CheckContext:
    """The settings (or their error), the session's status, and access to the cluster.

    make_link: returns the link that the settings choose. prompter: answers the link's questions;
    None without a user. system: directory of the kernel's files, /proc of this machine. patience:
    factor on all limits, for slow machines.
    An async context manager: its end closes the doctor's own connection.
    """

    def __init__(
        self,
        settings: Settings | TunnelkitError,
        paths: SessionPaths,
        *,
        project_dir: Path,
        make_link: Callable[[Settings, LinkSetup], Link],
        prompter: Prompter | None = None,
        system: Path = Path("/proc"),
        patience: float = 1.0,
    ) -> None:
        self._settings = settings
        self.paths = paths
        self.project_dir = project_dir
        self.interactive = prompter is not None
        self.system = system
        self.patience = patience
        self._make_link = make_link
        self._prompter = prompter
        self._far: RemoteAccess | None = None
        #: None: no session, or its status was not queried yet.
        self.status: SessionStatus | None = None
        self._stack = AsyncExitStack()
        self._own: Link | None = None
        self._linking = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    @property
    def settings(self) -> Settings:
        """The settings. Raises the ConfigError of the attempt to read them."""
        if isinstance(self._settings, TunnelkitError):
            raise self._settings
        return self._settings

    @property
    def login(self) -> str:
        """The login host, for messages."""
        return str(self.settings.require_login())

    async def look_for_session(
        self, in_thread: Callable[[Callable[[], SessionStatus]], Awaitable[SessionStatus]]
    ) -> SessionStatus | None:
        """Query the project's session; return its status, None if there is none."""
        if not is_alive(self.paths):
            return None
        self.status = await in_thread(lambda: ask(self.paths, Status(), silence_s=_ASK_S))
        return self.status

    async def connect(self) -> RemoteAccess:
        """Connect to the cluster, by the session's link or by a new one."""
        if self._far is None:
            if self.status is not None and self.status["state"] not in ("failed", "closing"):
                self._far = SessionAccess(self.paths)
            else:
                self._far = await LinkAccess.connect(
                    lambda setup: self._make_link(self.settings, setup), self._prompter
                )
                self._stack.push_async_callback(self._far.close)
        return self._far

    async def own_link(self) -> Link:
        """Return a link of the doctor's own, open; its context's end closes it.

        For links that ask nobody anything. Raises ConnectionFailed, ConfigError."""
        async with self._linking:
            if self._own is None:
                directory = tempfile.TemporaryDirectory(prefix="tk-")
                self._stack.callback(directory.cleanup)
                link = self._make_link(self.settings, LinkSetup(Path(directory.name)))
                self._stack.push_async_callback(link.close)
                await link.open()
                self._own = link
            return self._own

    @property
    def far(self) -> RemoteAccess:
        """Access to the cluster. Raises ConnectionFailed before `connect`."""
        if self._far is None:
            raise ConnectionFailed("the doctor has not connected yet", hint="tk doctor")
        return self._far

    async def script(self, text: str, *args: str, timeout_s: float = 30.0) -> Completed:
        """Run a Bourne shell script on the login host."""
        return await self.far.run(["sh", "-c", text, "sh", *args], timeout_s=timeout_s)

    async def timed(self, argv: Sequence[str]) -> tuple[Completed, float]:
        """Run a command on the login host; return its duration in seconds."""
        begin = time.monotonic()
        done = await self.far.run(argv, timeout_s=30.0)
        return done, time.monotonic() - begin

    @property
    def ready(self) -> SessionStatus | None:
        """The status of a session that is up with its agent on a node, else None."""
        status = self.status
        if status is None or status["state"] != "ready" or not status["node"]:
            return None
        return status
