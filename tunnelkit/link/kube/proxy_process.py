"""One `kubectl proxy` process on a private unix socket.

It asks nobody anything: its stdin is /dev/null and it has no terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

from tunnelkit.child_process import Lines, drain, end, run_child, socket_pair, spawn
from tunnelkit.errors import ConnectionFailed, MissingProgram
from tunnelkit.link.kube.printable import printable
from tunnelkit.link.kube.target import KubeTarget

_SERVES = "Starting to serve on"
_END_S = 3.0


class TooOld(ConnectionFailed):
    """Error: this kubectl does not know --append-server-path."""


class ProxyProcess:
    """A process that `start` starts and `close` ends.

    directory: of its socket and its pid. number: of this process there, 0 for the first."""

    def __init__(self, target: KubeTarget, directory: Path, number: int) -> None:
        self._target = target
        self.socket = directory / f"api{number or ''}.sock"
        self._pid_file = directory / f"proxy{number or ''}.pid"
        self._child: asyncio.subprocess.Process | None = None
        self._output = Lines(keep=20)
        self._reading: list[asyncio.Task[None]] = []

    @property
    def is_running(self) -> bool:
        """True until the process has ended, as far as is known."""
        return self._child is not None and self._child.returncode is None

    def said(self, mark: int = 0) -> str:
        """Return what kubectl and its login plugin have printed since `mark`."""
        lines = (one for one in self._output.since(mark) if _SERVES not in one)
        return printable(" ".join(lines))

    def mark(self) -> int:
        """Return a position for `said`."""
        return self._output.mark()

    async def wait(self) -> None:
        """Return once the process has ended."""
        if self._child is not None:
            await self._child.wait()

    async def start(self, *, appends: bool) -> None:
        """Start it, and return once it serves. appends: see `KubeTarget.proxy_argv`.

        One that a killed session left behind is ended first. Raises ConnectionFailed, TooOld,
        MissingProgram."""
        await self.end_left_behind()
        await self._spawn(appends)
        assert self._child is not None
        serves = asyncio.create_task(self._output.wait_for(_SERVES))
        ended = asyncio.create_task(self._child.wait())
        try:
            await asyncio.wait(
                {serves, ended},
                timeout=self._target.start_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not serves.done():
                if ended.done():  # its last words may still be on their way
                    await asyncio.wait(self._reading, timeout=1.0)
                raise self._no_start(ended.done(), appends)
        except BaseException:
            await self.close()
            raise
        finally:
            for task in (serves, ended):
                task.cancel()
            await asyncio.gather(serves, ended, return_exceptions=True)

    async def close(self) -> None:
        """End it. Idempotent."""
        child, self._child = self._child, None
        if child is None:
            return
        await end(child)
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        self._reading = []
        self._remove_files()

    def _remove_files(self) -> None:
        for file in (self.socket, self._pid_file):
            file.unlink(missing_ok=True)

    async def _spawn(self, appends: bool) -> None:
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
            argv = self._target.proxy_argv(str(self.socket), appends=appends)
            child = await spawn(argv, stdout=child_out, stderr=child_err)
        except BaseException:
            out.close()
            err.close()
            raise
        self._child = child
        self._reading = [asyncio.create_task(drain(one, self._output)) for one in (out, err)]
        self._pid_file.write_text(f"{child.pid}\n")
        self._pid_file.chmod(0o600)

    def _no_start(self, has_ended: bool, appends: bool) -> ConnectionFailed:
        why = printable(self._output.text()) if has_ended else "it did not start in time"
        if has_ended and appends and "unknown flag: --append-server-path" in why:
            return TooOld(
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

    async def end_left_behind(self) -> None:
        """End the proxy of a killed session. Only a process that names our own socket is one."""
        try:
            pid = int(self._pid_file.read_text()[:12])
        except (OSError, ValueError):
            pid = 0
        await self._end(pid)
        self._remove_files()

    async def _end(self, pid: int) -> None:
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
