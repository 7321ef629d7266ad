"""The `kubectl proxy` of a link: it holds the user's login, which it reads at its start.

The API server asks who you are at the start of a request or stream, and not again. So a login that
has ended cuts nothing that runs, and the proxy with a new login stands beside the earlier one.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from pathlib import Path

from tunnelkit.errors import AuthenticationFailed, ConnectionFailed
from tunnelkit.link.kube import http
from tunnelkit.link.kube.api_error import LOG_IN, refusal, said
from tunnelkit.link.kube.printable import printable
from tunnelkit.link.kube.proxy_process import ProxyProcess, TooOld
from tunnelkit.link.kube.target import KubeTarget

#: Signs of life that may fail one after the other.
_MISSED = 2
_ANSWER_S = 10.0
#: Processes of earlier logins that are kept for their streams; each has some 40 MB.
_KEPT = 2


class KubectlProxy:
    """The proxy of one link. Call `open`, then `request`; `wait` returns when it is lost."""

    def __init__(self, target: KubeTarget, directory: Path, *, answer_s: float = _ANSWER_S) -> None:
        self._target = target
        self._answer_s = answer_s
        # One more than can run at once, so that each start finds a free one.
        self._free = deque(ProxyProcess(target, directory, number) for number in range(_KEPT + 2))
        self._current = self._free.popleft()
        self._earlier: deque[ProxyProcess] = deque()
        #: False for a kubectl that is too old for it: see `KubeTarget.proxy_argv`
        self._appends = True
        self._watch: asyncio.Task[str] | None = None
        #: True from the refusal of the login until an `open` that succeeds. Streams go on.
        self.is_login_refused = False
        #: The version of the API server, as its `gitVersion`.
        self.version = ""

    @property
    def socket(self) -> Path:
        """The path that new requests and streams go to."""
        return self._current.socket

    @property
    def minor(self) -> int:
        """The minor version of the API server; 0 if it is not known."""
        found = re.match(r"v1\.([0-9]{1,4})", self.version)
        return int(found[1]) if found else 0

    @property
    def longest(self) -> Path:
        """The longest path that `socket` can be."""
        return max((self._current, *self._free), key=lambda one: len(str(one.socket))).socket

    @property
    def is_up(self) -> bool:
        """True if the proxy has not ended and the API server answered, as far as is known."""
        if self.is_login_refused:
            return self._current.is_running
        return self._watch is not None and not self._watch.done()

    async def open(self) -> None:
        """Start the proxy unless it answers. Raises ConnectionFailed, MissingProgram.

        One that runs is left as it is until one with the login of now answers."""
        if self._current.is_running:
            try:
                await self._greet(self._current)
            except ConnectionFailed:
                # A plugin may only be waiting for its user: the streams of this one may go on.
                await self._open_beside()
            else:
                if not self.is_up or self.is_login_refused:
                    await self._watch_again()
            return
        await self._stop_watch()
        self.is_login_refused = False
        await self._current.close()
        for one in self._free:
            await one.end_left_behind()
        await self._start(self._current)
        await self._watch_again()

    async def wait(self) -> str:
        """Return, with the reason, once the proxy, the API server or the login is gone."""
        if self._watch is None:
            return f"there is no connection to {self._target}"
        return await asyncio.shield(self._watch)

    async def request(self, method: str, path: str, body: bytes = b"") -> http.Response:
        """Send a request to the API server. Raises ConnectionFailed if there is no answer."""
        return await self._ask(self._current, method, path, body)

    def lost(self, why: str) -> ConnectionFailed:
        """Return the error of a request that got no answer."""
        return ConnectionFailed(
            f"the connection to {self._target} is lost",
            cause=why,
            transient=True,
            hint="tk reconnects by itself; `tk status` shows the state",
        )

    async def close(self) -> None:
        """End the proxy, and those of earlier logins. Idempotent."""
        await self._stop_watch()
        self.is_login_refused = False
        await self._current.close()
        while self._earlier:
            await self._end_earliest()

    # -- inside

    async def _ask(
        self, process: ProxyProcess, method: str, path: str, body: bytes = b""
    ) -> http.Response:
        try:
            return await http.request(process.socket, method, path, body)
        except (OSError, http.HttpError) as error:
            raise self.lost(printable(str(error))) from error

    async def _start(self, process: ProxyProcess) -> None:
        """Start it, and greet; it is ended again if the API server does not answer well."""
        try:
            await process.start(appends=self._appends)
        except TooOld:
            self._appends = False
            await process.start(appends=False)
        try:
            await self._greet(process)
        except BaseException:
            await process.close()
            raise

    async def _open_beside(self) -> None:
        """Put a proxy with the login of now in the place of one whose login has ended.

        Raises AuthenticationFailed if that one is refused, too: the earlier one stays then."""
        successor = self._free[0]
        await self._start(successor)
        self._free.popleft()
        self._earlier.append(self._current)
        self._current = successor
        if len(self._earlier) > _KEPT:
            await self._end_earliest()
        await self._watch_again()

    async def _end_earliest(self) -> None:
        process = self._earlier.popleft()
        await process.close()
        self._free.append(process)

    async def _watch_again(self) -> None:
        await self._stop_watch()
        self.is_login_refused = False
        self._watch = asyncio.create_task(self._live())

    async def _stop_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _greet(self, process: ProxyProcess) -> None:
        """Ask for the server's version. Raises ConnectionFailed, AuthenticationFailed."""
        mark = process.mark()
        try:
            async with asyncio.timeout(self._answer_s):
                answer = await self._ask(process, "GET", "/version")
        except TimeoutError as error:
            # A login plugin may wait for a browser, or for a code that nobody sees here.
            said_there = process.said(mark)
            kubectl = f"; {self._target.kubectl} said: {said_there}" if said_there else ""
            raise ConnectionFailed(
                f"the API server of {self._target} does not answer",
                cause=f"no answer within {self._answer_s:.0f} s{kubectl}",
                transient=True,
                hint=f"does a login plugin ask you something? {LOG_IN}"
                if said_there
                else "is a VPN needed? `tk doctor` checks the way there",
            ) from error
        if answer.status != 200:
            where = str(self._target)
            raise refusal(answer.status, said(answer.body), what="reach the API", where=where)
        found = re.search(rb'"gitVersion":\s*"(v[0-9][^"]{0,60})"', answer.body)
        self.version = printable(found[1].decode("ascii", "replace")) if found else ""

    async def _live(self) -> str:
        """Return, with the reason, once the proxy has ended, the API server is silent, or it
        refuses the login."""
        ended = asyncio.ensure_future(self._current.wait())
        missed = 0
        try:
            while True:
                await asyncio.wait([ended], timeout=self._target.alive_interval_s)
                if ended.done():
                    return f"kubectl proxy for {self._target} has ended"
                try:
                    await self._greet(self._current)
                    missed = 0
                except AuthenticationFailed as error:
                    self.is_login_refused = True
                    return error.one_line()
                except ConnectionFailed as error:
                    missed += 1
                    if missed == _MISSED or not error.transient:
                        return error.one_line()
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
