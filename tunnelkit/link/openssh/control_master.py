"""The life of one ControlMaster: opened once, watched, taken over, closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tunnelkit.child_process import (
    Lines,
    drain,
    end,
    end_drain,
    kill,
    run_child,
    socket_pair,
    spawn,
)
from tunnelkit.errors import AuthenticationFailed, ConnectionFailed, TunnelkitError
from tunnelkit.link.openssh.argv import READY, SshCommand
from tunnelkit.link.openssh.askpass import Asker
from tunnelkit.link.openssh.patient_logins import PatientLogins
from tunnelkit.link.shared.diagnosis import diagnose
from tunnelkit.link.shared.hop_forward import PROBE_TARGET
from tunnelkit.link.shared.loss import WatchedConnection, lost
from tunnelkit.model import Completed

_CONTROL_TIMEOUT_S = 5.0
_LAST_WORDS_S = 0.5
_POLL_S = 3.0
#: A host whose sshd does not answer in that time is taken for lost.
_PROOF_S = 10.0
#: A login of that time waited for nobody: a confirmation on a phone takes longer.
_QUICK_S = 3.0
#: What ssh says while it waits for a finger on a security key.
_TOUCH = "Confirm user presence"
#: ssh's message for a host that went silent after its banner: mostly it waits for a confirmation.
_SILENT_LOGIN = re.compile(r"^Connection to .* timed out", re.MULTILINE)
_NO_BANNER = "during banner exchange"


class Prepare(Protocol):
    """See `ControlMaster`."""

    async def __call__(self, *, patient: bool) -> tuple[list[str], Asker | None]:
        """Return the argv of a new master, and its asker."""
        ...


class ControlMaster(WatchedConnection):
    """One authenticated connection to one host, shared by all that goes there.

    `prepare` gives the argv of a new master and the asker that answers its questions (None:
    nobody); patient: True if the host's logins wait for their user, or may, by `patient_logins`.
    notice: called with what ssh wants to show. `upstream` is the master that this one goes
    through; only that one's stderr says why a hop could not be made. The process is a child of this
    one, or one that a killed predecessor left and that was adopted.
    """

    def __init__(
        self,
        host: str,
        control_path: Path,
        command: SshCommand,
        prepare: Prepare,
        *,
        silence_limit_s: float,
        auth_timeout_s: float,
        patient_logins: PatientLogins,
        upstream: ControlMaster | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self.host = host
        self.control_path = control_path
        self.command = command
        self.log = Lines()
        self.adopted = False
        self.pid: int | None = None
        self._prepare = prepare
        self._patient_logins = patient_logins
        #: True if this ssh itself notices late that its connection is lost.
        self._notices_late = False
        self._proving = asyncio.Lock()
        self._silence_limit_s = silence_limit_s
        self._auth_timeout_s = auth_timeout_s
        self._upstream = upstream
        self._notice = notice
        self._lock = asyncio.Lock()
        self._child: asyncio.subprocess.Process | None = None

    async def open(self, *, verify: bool = False) -> bool:
        """Make sure that the connection is there; True if it had to be made or taken over.
        With `verify` a master that does not answer is ended and replaced.

        Raises ConnectionFailed, HostKeyError or ConfigError. Concurrent callers share
        one attempt, so that nothing authenticates twice.
        """
        async with self._lock:
            if self.is_up and not (verify and await self._running_pid() is None):
                return False
            if self.adopted and self.is_up:
                await self._end_adopted()
            await self._reap()
            pid = await self._running_pid()
            if pid is not None:
                self._adopt(pid)
            else:
                # A dead master's socket would make ssh go on without multiplexing.
                self.control_path.unlink(missing_ok=True)
                await self._start()
            return True

    async def check(self) -> bool:
        """Ask the master itself whether it is there."""
        return self.is_up and await self._running_pid() is not None

    async def prove(self) -> None:
        """End a connection that is dead and would notice it late. Concurrent calls share one."""
        if self._proving.locked():
            return
        async with self._proving:
            if not (self._notices_late and self.is_up):
                return
            # sshd answers by itself, with a refusal; a shell would wait for a home that stalls.
            argv = [*self.command.control(self.control_path), "-W", PROBE_TARGET, "--", "mux"]
            with contextlib.suppress(TimeoutError):
                await run_child(argv, timeout_s=_PROOF_S)
                return
            async with self._lock:
                if self.adopted and self.is_up:
                    await self._end_adopted()
                elif self._child is not None:
                    await end(self._child)

    async def control(self, operation: str, *words: str) -> Completed:
        """`ssh -O operation`. Raises ConnectionFailed if the master does not answer."""
        try:
            return await run_child(
                [*self.command.control(self.control_path), "-O", operation, *words, "--", "mux"],
                timeout_s=_CONTROL_TIMEOUT_S,
            )
        except TimeoutError as error:
            why = f"ssh -O {operation} took more than {_CONTROL_TIMEOUT_S:.0f} s"
            what = "the ssh connection to {} does not answer"
            raise lost(self.host, why, what=what) from error

    async def close(self) -> None:
        """End the connection and its process, own or adopted. Idempotent."""
        async with self._lock:
            if self.is_up:
                with contextlib.suppress(TunnelkitError):
                    await self.control("exit")
            if self.adopted and self.is_up:
                await self._end_adopted()
            await self._reap()
            self.control_path.unlink(missing_ok=True)

    # -- a master of our own

    async def _start(self) -> None:
        patient = self._may_wait_for_user()
        argv, asker = await self._prepare(patient=patient)
        env = asker.env if asker else _silent_env()
        mark = self._upstream.log.mark() if self._upstream else 0
        self.log = Lines(on_line=self._heard)
        said = Lines(keep=5)
        (stdout, child_stdout), (stderr, child_stderr) = socket_pair(), socket_pair()
        started = time.monotonic()
        child = await spawn(argv, stdout=child_stdout, stderr=child_stderr, env=env)
        drained = asyncio.create_task(drain(stderr, self.log))
        draining = asyncio.create_task(drain(stdout, said))
        try:
            await self._until_ready(said, draining, asker)
            if await self._running_pid() != child.pid:
                await asyncio.wait([draining], timeout=_LAST_WORDS_S)
                if draining.done():  # it was lost as soon as it was there
                    raise _Ended
                words = self.log.text()
                raise ConnectionFailed(
                    f"ssh to {self.host} does not share its connection",
                    cause=words or f"no answer at {self.control_path}",
                    transient=not words,
                    hint="`ssh -v` shows why; is OpenSSH's multiplexing there? tk doctor",
                )
        except BaseException as error:
            await kill(child)
            await end_drain(drained)
            await end_drain(draining)
            self.control_path.unlink(missing_ok=True)
            if isinstance(error, _Ended):
                above = self._upstream.log.since(mark) if self._upstream else []
                text = "\n".join([self.log.text(), *above])
                found = await asyncio.to_thread(diagnose, self.host, text)
                raise self._for_its_user(found, text, asker) from None
            raise
        if asker and asker.answered_at is not None:
            self._patient_logins.add(self.host)
        elif self._upstream is None and time.monotonic() - started < _QUICK_S:
            self._patient_logins.add_quick(self.host)
        self._notices_late = patient
        self._child, self.pid, self.adopted = child, child.pid, False
        self._watch = asyncio.create_task(self._watch_child(child, drained, draining))

    def _may_wait_for_user(self) -> bool:
        """True if the login may wait for a confirmation. Behind a login host that is rare."""
        known = self._patient_logins
        return self.host in known if self._upstream else known.may_contain(self.host)

    async def _until_ready(
        self, said: Lines, draining: asyncio.Task[None], asker: Asker | None
    ) -> None:
        ready = asyncio.create_task(said.wait_for(READY))
        waits: set[asyncio.Future[Any]] = {ready, draining}
        if asker:
            waits.add(asker.unanswered)
        started = time.monotonic()
        try:
            while True:
                await asyncio.wait(waits, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                if asker and asker.unanswered.done():
                    raise AuthenticationFailed(
                        f"{self.host} asks a question and nobody answered",
                        cause=asker.unanswered.result(),
                        hint="answer in a terminal: `tk auth` (or `tk up`); a key's passphrase: "
                        "ssh-add",
                    )
                if READY in said.text():
                    return
                if draining.done():  # the end of stdout is the end of ssh
                    raise _Ended
                self._check_silence(started, asker)
        finally:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)

    def _heard(self, line: str) -> None:
        if _TOUCH in line and self._notice is not None:
            self._notice(f"{self.host}: touch your security key ({line.strip()})")

    def _check_silence(self, started: float, asker: Asker | None) -> None:
        limit, since = self._silence_limit_s, started
        if asker and asker.waiting:
            return  # a user is thinking
        if asker and asker.attended:
            # Or confirms elsewhere, on a phone or by an agent. ssh finds a dead host by itself.
            limit, since = max(limit, self._auth_timeout_s), asker.answered_at or started
        if time.monotonic() - since <= limit:
            return
        silent = self.log.text() or f"ssh was silent for {limit:.0f} s"
        if asker and asker.attended:
            raise _broken_off(self.host, silent)
        raise ConnectionFailed(
            f"{self.host} does not answer",
            cause=silent,
            hint="check the network or VPN, and the host name",
            transient=True,
        )

    def _for_its_user(
        self, found: TunnelkitError, text: str, asker: Asker | None
    ) -> TunnelkitError:
        """Return the error of an ssh that ended: if its user may have acted for it, one that stops
        the attempts. A further one would ask, or send a push, again."""
        if not found.transient or asker is None or not asker.attended:
            return found
        late = _SILENT_LOGIN.search(text) is not None and _NO_BANNER not in text
        if late or asker.answered_at is not None:
            self._patient_logins.add(self.host)
        if not late and asker.answered_at is None:
            return found
        return _broken_off(self.host, found.cause or found.message)

    async def _watch_child(
        self, child: asyncio.subprocess.Process, *outputs: asyncio.Task[None]
    ) -> str:
        code = await child.wait()
        for drained in outputs:
            await end_drain(drained)
        if code < 0:
            return f"ssh to {self.host} was ended by {signal.Signals(-code).name}"
        lines = [line for line in self.log.text().splitlines() if "open failed" not in line]
        return f"ssh to {self.host} ended: {lines[-1] if lines else f'exit status {code}'}"

    # -- a master that a predecessor left

    def _adopt(self, pid: int) -> None:
        self._child, self.pid, self.adopted, self._notices_late = None, pid, True, True
        self._watch = asyncio.create_task(self._watch_pid(pid))

    async def _watch_pid(self, pid: int) -> str:
        if not hasattr(os, "pidfd_open"):
            while await self._running_pid() is not None:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(_POLL_S)
            return f"ssh to {self.host} ended"
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return f"ssh to {self.host} ended"
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(pidfd, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        return f"ssh to {self.host} ended"

    async def _end_adopted(self) -> None:
        """Ask the adopted master to exit; it had its chance to end by itself. Then kill it."""
        assert self._watch is not None and self.pid is not None
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, sign)
            done, _ = await asyncio.wait({self._watch}, timeout=3.0)
            if done:
                return

    # -- both

    async def _running_pid(self) -> int | None:
        """The pid of the master that answers on the control socket, None if none does."""
        if not self.control_path.exists():
            return None
        try:
            done = await self.control("check")
        except ConnectionFailed:
            return None
        match = re.search(r"\(pid=(\d+)\)", done.text + done.error_text)
        return int(match[1]) if match and done.exit_code == 0 else None

    async def _reap(self) -> None:
        """Forget the process that was; end it if it is ours and still there."""
        if self._child is not None:
            await end(self._child)
        if self._watch is not None:
            if self._child is None:
                self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self._child = self._watch = self.pid = None


def _broken_off(host: str, cause: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"the login at {host} broke off",
        cause=cause,
        hint="once more: `tk auth`, or `tk up`; if it waits for a push, confirm that at once",
    )


class _Ended(Exception):
    """ssh ended before it was ready."""


def _silent_env() -> dict[str, str]:
    """The environment of an ssh that must not ask: neither a terminal nor a window."""
    return {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
