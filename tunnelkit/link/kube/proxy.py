"""`kubectl proxy` on a private unix socket: the one process that holds the user's login.

It asks nobody anything: its stdin is /dev/null and it has no terminal. One that a killed session
left behind is ended, and a new one made.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from pathlib import Path

from tunnelkit.child_process import Lines, drain, end, run_child, socket_pair, spawn
from tunnelkit.errors import ConnectionFailed, MissingProgram
from tunnelkit.link.kube import http
from tunnelkit.link.kube.api_error import refusal, said
from tunnelkit.link.kube.printable import printable
from tunnelkit.link.kube.target import KubeTarget

_SERVES = "Starting to serve on"
#: Signs of life that may fail one after the other.
_MISSED = 2
_ANSWER_S = 10.0
_END_S = 3.0


class _TooOld(ConnectionFailed):
    """Error: this kubectl does not know --append-server-path."""


class KubectlProxy:
    """The proxy of one link. Call `open`, then `request`; `wait` returns when it is lost."""

    def __init__(self, target: KubeTarget, directory: Path) -> None:
        self._target = target
        self.socket = directory / "api.sock"
        self._pid_file = directory / "proxy.pid"
        self._child: asyncio.subprocess.Process | None = None
        self._output = Lines(keep=20)
        #: False for a kubectl that is too old for it: see `KubeTarget.proxy_argv`
        self._appends = True
        self._reading: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[str] | None = None
        #: The version of the API server, as its `gitVersion`.
        self.version = ""

    @property
    def is_up(self) -> bool:
        """True if the proxy has not ended, as far as is known."""
        return self._watch is not None and not self._watch.done()

    async def open(self) -> None:
        """Start the proxy unless it answers. Raises ConnectionFailed, MissingProgram."""
        if self.is_up:
            try:
                await self._greet()
                return
            except ConnectionFailed:
                pass  # a new one reads the login again
        await self.close()
        await self._end_left_behind()
        try:
            await self._start()
        except _TooOld:
            self._appends = False
            await self._start()
        try:
            await self._greet()
        except BaseException:
            await self.close()
            raise
        self._watch = asyncio.create_task(self._live())

    async def wait(self) -> str:
        """Return, with the reason, once the proxy or the API server is gone."""
        if self._watch is None:
            return f"there is no connection to {self._target}"
        return await asyncio.shield(self._watch)

    async def request(self, method: str, path: str, body: bytes = b"") -> http.Response:
        """Send a request to the API server. Raises ConnectionFailed if there is no answer."""
        try:
            return await http.request(self.socket, method, path, body)
        except (OSError, http.HttpError) as error:
            raise self.lost(printable(str(error))) from error

    def lost(self, why: str) -> ConnectionFailed:
        """Return the error of a request that got no answer."""
        return ConnectionFailed(
            f"the connection to {self._target} is lost",
            cause=why,
            transient=True,
            hint="tk reconnects by itself; `tk status` shows the state",
        )

    async def close(self) -> None:
        """End the proxy. Idempotent."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        child, self._child = self._child, None
        if child is not None:
            await end(child)
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        self._reading = []
        for file in (self.socket, self._pid_file):
            file.unlink(missing_ok=True)

    # -- inside

    async def _start(self) -> None:
        program = self._target.kubectl
        if shutil.which(program) is None:
            raise MissingProgram(
                f"{program} is not installed",
                hint="install kubectl or oc, or set [cluster] kubectl to its path",
            )
        self._output = Lines(keep=20)
        out, child_out = socket_pair()
        err, child_err = socket_pair()
        try:
            argv = self._target.proxy_argv(str(self.socket), appends=self._appends)
            child = await spawn(argv, stdout=child_out, stderr=child_err)
        except BaseException:
            out.close()
            err.close()
            raise
        self._child = child
        self._reading = [asyncio.create_task(drain(one, self._output)) for one in (out, err)]
        self._pid_file.write_text(f"{child.pid}\n")
        self._pid_file.chmod(0o600)
        serves = asyncio.create_task(self._output.wait_for(_SERVES))
        ended = asyncio.create_task(child.wait())
        try:
            await asyncio.wait(
                {serves, ended},
                timeout=self._target.start_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not serves.done():
                if ended.done():  # its last words may still be on their way
                    await asyncio.wait(self._reading, timeout=1.0)
                raise self._no_start(ended.done())
        except BaseException:
            await self.close()
            raise
        finally:
            for task in (serves, ended):
                task.cancel()
            await asyncio.gather(serves, ended, return_exceptions=True)

    def _no_start(self, has_ended: bool) -> ConnectionFailed:
        why = printable(self._output.text()) if has_ended else "it did not start in time"
        if has_ended and self._appends and "unknown flag: --append-server-path" in why:
            return _TooOld(
                f"{self._target.kubectl} is older than 1.23", hint="install a newer kubectl"
            )
        if "does not exist" in why or "no context exists" in why:
            return ConnectionFailed(
                f"there is no context {self._target.context} in your kubeconfig",
                cause=why,
                hint="`kubectl config get-contexts` lists them; set [cluster] context to one",
            )
        return ConnectionFailed(
            f"{self._target.kubectl} proxy for {self._target} did not start",
            cause=why,
            transient=not has_ended,
            hint=f"does `{self._target.kubectl} --context {self._target.context} version` work?",
        )

    async def _greet(self) -> None:
        """Ask for the server's version. Raises ConnectionFailed, AuthenticationFailed."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await self.request("GET", "/version")
        except TimeoutError as error:
            raise ConnectionFailed(
                f"the API server of {self._target} does not answer",
                cause=f"no answer within {_ANSWER_S:.0f} s",
                transient=True,
                hint="is a VPN needed? `tk doctor` checks the way there",
            ) from error
        if answer.status != 200:
            where = str(self._target)
            raise refusal(answer.status, said(answer.body), what="reach the API", where=where)
        found = re.search(rb'"gitVersion":\s*"(v[0-9][^"]{0,60})"', answer.body)
        self.version = printable(found[1].decode("ascii", "replace")) if found else ""

    async def _live(self) -> str:
        """Return, with the reason, once the proxy has ended or the API server is silent."""
        assert self._child is not None
        ended = asyncio.ensure_future(self._child.wait())
        missed = 0
        try:
            while True:
                await asyncio.wait([ended], timeout=self._target.alive_interval_s)
                if ended.done():
                    return f"kubectl proxy for {self._target} has ended"
                try:
                    await self._greet()
                    missed = 0
                except ConnectionFailed as error:
                    missed += 1
                    if missed == _MISSED or not error.transient:
                        return error.one_line()
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)

    async def _end_left_behind(self) -> None:
        """End the proxy of a killed session. Only a process that names our own socket is one."""
        try:
            pid = int(self._pid_file.read_text()[:12])
        except (OSError, ValueError):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not await self._is_ours(pid):
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    while await self._is_ours(pid):  # noqa: ASYNC110 - no child of this process
                        await asyncio.sleep(0.02)

    async def _is_ours(self, pid: int) -> bool:
        if pid <= 1:
            return False
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            if Path("/proc/self").exists():
                return False
            done = await run_child(["ps", "-o", "command=", "-p", str(pid)], timeout_s=5.0)
            argv = done.stdout
        except OSError:
            return False
        return b"proxy" in argv and os.fsencode(self.socket) in argv
