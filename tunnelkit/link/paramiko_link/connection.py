"""The life of one authenticated connection: made once, watched, closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

from tunnelkit.link.base import Prompter
from tunnelkit.link.paramiko_link.connect import Attempt, HopPath, Step, quietly_end
from tunnelkit.link.paramiko_link.thread_tasks import in_thread, start_thread
from tunnelkit.link.paramiko_link.transport import SshTransport
from tunnelkit.link.shared.loss import WatchedConnection, lost

_TICK_S = 1.0
#: How long a connection that is asked whether it lives may take.
_VERIFY_S = 5.0


class ParamikoConnection(WatchedConnection):
    """One host's connection, shared by all that goes there.

    steps: the hosts on the way and their rules, read again for each attempt. prompter: asks the
    user this time; None: nobody. upstream: the connection that this one goes through.
    """

    def __init__(
        self,
        host: str,
        steps: Callable[[], list[Step]],
        *,
        prompter: Callable[[], Prompter | None],
        notice: Callable[[str], None],
        connect_timeout_s: float,
        auth_timeout_s: float,
        alive_interval_s: float,
        alive_count_max: int,
        upstream: ParamikoConnection | None = None,
    ) -> None:
        self.host = host
        self._steps = steps
        self._prompter = prompter
        self._notice = notice
        self._connect_timeout_s = connect_timeout_s
        self._auth_timeout_s = auth_timeout_s
        self._alive_interval_s = alive_interval_s
        self._silence_s = alive_interval_s * alive_count_max
        self._upstream = upstream
        self._lock = asyncio.Lock()
        self._made: list[SshTransport] = []
        self._beats: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def transport(self) -> SshTransport:
        """Raises ConnectionFailed if there is none."""
        if not self._made or not self.is_up:
            raise lost(self.host, "it ended a moment ago")
        return self._made[-1]

    async def open(self, *, verify: bool = False) -> bool:
        """Make sure that the connection is there; True if it had to be made. With `verify`
        one that does not answer is ended and replaced.

        Raises ConnectionFailed, HostKeyError or ConfigError. Concurrent callers share one
        attempt, so that nothing authenticates twice.
        """
        async with self._lock:
            if self.is_up and not (verify and not await self._answers()):
                return False
            await self._end()
            attempt = Attempt(self._prompter(), self._notice)
            way = HopPath(
                await asyncio.to_thread(self._steps),
                attempt,
                self._connect_timeout_s,
                self._auth_timeout_s,
                self._upstream.transport if self._upstream else None,
            )
            silence = asyncio.create_task(attempt.end_if_silent(self._auth_timeout_s))
            try:
                self._made = await in_thread(f"connect {self.host}", way.run, abort=attempt.abort)
            finally:
                silence.cancel()
            self._begin()
            return True

    async def check(self) -> bool:
        """True if the connection is there, as far as is known: silence ends it."""
        return self.is_up

    async def close(self) -> None:
        """End it, and its threads. Idempotent."""
        async with self._lock:
            await self._end()

    # -- inside

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        transport = self._made[-1]
        gone = asyncio.Event()

        def ended() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(gone.set)

        transport.ended = ended
        if not transport.is_active():
            gone.set()
        transport.heard_at = time.monotonic()
        self._stop = stop = threading.Event()
        self._watch = asyncio.create_task(self._watching(transport, gone))

        def beat() -> None:
            while not stop.wait(self._alive_interval_s) and transport.ping():
                pass

        self._beats = start_thread(f"keepalive {self.host}", beat)

    async def _watching(self, transport: SshTransport, gone: asyncio.Event) -> str:
        """Until the end; a silent connection is given up, as by ServerAliveCountMax."""
        limit_s = self._silence_s + self._alive_interval_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_TICK_S, self._alive_interval_s)):
                    await gone.wait()
            if gone.is_set():
                return f"the connection to {self.host} ended: {transport.why_ended()}"
            if time.monotonic() - transport.heard_at > limit_s:
                transport.abort()
                return f"{self.host} has not answered for {limit_s:g} s"

    async def _answers(self) -> bool:
        """Ask the far side, and wait a moment. The keepalive thread may be asking too: then
        its answer is as good."""
        transport = self._made[-1]
        before = transport.heard_at

        def asked() -> None:
            transport.ping()

        asking = start_thread(f"verify {self.host}", asked)
        deadline = time.monotonic() + _VERIFY_S
        while time.monotonic() < deadline and self.is_up:
            if transport.heard_at > before:
                await asyncio.to_thread(asking.join, 1.0)
                return True
            await asyncio.sleep(0.02)
        return False

    async def _end(self) -> None:
        made, self._made = self._made, []
        self._stop.set()
        if made:
            await asyncio.to_thread(_end_all, made, self._beats)
        if self._watch is not None:
            await asyncio.wait({self._watch}, timeout=_TICK_S)
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self._watch = self._beats = None


def _end_all(made: list[SshTransport], beats: threading.Thread | None) -> None:
    for transport in reversed(made):
        quietly_end(transport)
    if beats is not None:
        beats.join(2.0)
