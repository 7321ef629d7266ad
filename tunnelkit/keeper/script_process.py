"""The user's script as a child process: signals are passed on, and its end is taken over.

This process has Slurm's place for the script, so Slurm's signals come here. Plugins differ:
with cgroups Slurm signals this process alone, with proctrack/linuxproc the script as well. In the
latter case a witness, a process that only waits for signals, tells whether Slurm signalled all.
"""

import errno
import os
import resource
import select
import signal
import sys
from typing import Dict, FrozenSet, List, NamedTuple, NoReturn, Optional, Protocol, Set

#: These can't be caught, or are about this process's own children.
_OWN = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
SIGNALS = frozenset(signal.valid_signals()) - _OWN
#: Python ignores them; the script must find them as Slurm left them.
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
#: Limit for the witness's report. Slurm signals all processes of a job within microseconds.
_WITNESS_S = 0.1


class End(NamedTuple):
    """The script's end. signal: 0 unless one ended it. cancelled: TERM came from outside."""

    code: int
    signal: int
    cancelled: bool

    @property
    def failed(self) -> bool:
        """True unless the exit code is 0."""
        return bool(self.code or self.signal)


class Watch(Protocol):
    """Looks after the script's programs while it runs."""

    def look(self) -> float:
        """Do what is due; return the seconds until the next check."""
        ...

    def takes(self, number: int) -> bool:
        """Return True for a signal that is not for the script."""
        ...


class How(NamedTuple):
    """ignored: the signals that the job ignores, as in /proc/PID/status. witnessed: the scheduler
    may signal each process of the job. leads: the script has a process group of its own."""

    ignored: int
    witnessed: bool
    leads: bool


def run(
    path: bytes,
    words: List[bytes],
    environ: Dict[bytes, bytes],
    how: How,
    watch: Optional[Watch] = None,
) -> End:
    """Run the script to its end."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    witness = _Witness(how.leads) if how.witnessed else None
    try:
        shell = _shell()
        child = os.fork()
        if child == 0:
            if how.leads:
                _lead_group(0)
            _become(path, words, environ, how.ignored, mask, shell)
        if how.leads:
            _lead_group(child)
        return _wait(child, witness, watch)
    finally:
        if witness is not None:
            witness.close()


def _shell() -> bytes:
    """Return the shell that has started the job's script: it runs those without a #! line."""
    try:
        return os.readlink(f"/proc/{os.getppid()}/exe".encode())
    except OSError:
        return b"/bin/sh"


def _lead_group(pid: int) -> None:
    """Make a process the leader of a group, as Slurm makes the script."""
    try:
        os.setpgid(pid, pid)
    except OSError:
        pass  # it has begun its program, and has done so itself


def _become(
    path: bytes,
    words: List[bytes],
    environ: Dict[bytes, bytes],
    ignored: int,
    mask: Set[int],
    shell: bytes,
) -> NoReturn:
    """Become the script. If that fails, end as Slurm does: with the number of the error."""
    code = errno.EIO
    try:
        for one in _PYTHON_IGNORES:
            kept = ignored >> (one - 1) & 1
            signal.signal(one, signal.SIG_IGN if kept else signal.SIG_DFL)
        if b"SLURM_TASK_PID" in environ:
            environ[b"SLURM_TASK_PID"] = str(os.getpid()).encode()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            os.execve(path, [path, *words], environ)  # noqa: S606
        except OSError as error:
            if error.errno != errno.ENOEXEC or b"SLURM_TASK_PID" in environ:
                raise
            os.execve(shell, [shell, path, *words], environ)  # noqa: S606
    except OSError as error:
        code = error.errno or errno.EIO
        print(f"tk submit: execve(): {os.fsdecode(path)}: {error.strerror}", file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(code)


def _wait(child: int, witness: "Optional[_Witness]", watch: Optional[Watch]) -> End:
    """Pass signals on until the script has ended."""
    cancelled = False
    while True:
        info = _next_signal(watch)
        if info is None or (watch is not None and watch.takes(info.si_signo)):
            continue
        if info.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                break
            continue
        cancelled = cancelled or info.si_signo == signal.SIGTERM
        if witness is None or not witness.saw(info.si_signo):
            try:
                os.kill(child, info.si_signo)
            except ProcessLookupError:
                pass
    if os.WIFSIGNALED(status):
        return End(0, os.WTERMSIG(status), cancelled)
    return End(os.WEXITSTATUS(status), 0, cancelled)


def _next_signal(watch: Optional[Watch]) -> "Optional[signal.struct_siginfo]":
    signals = SIGNALS | {signal.SIGCHLD}
    if watch is None:
        return signal.sigwaitinfo(signals)
    return signal.sigtimedwait(signals, watch.look())


class _Witness:
    """A process that reports the signals it gets."""

    def __init__(self, leads: bool) -> None:
        self._reports, out = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._watch(out, leads)
        if leads:
            _lead_group(self._pid)
        os.close(out)
        self._seen = []  # type: List[int]

    def _watch(self, out: int, leads: bool) -> NoReturn:
        try:
            if leads:
                _lead_group(0)
            while True:
                os.write(out, bytes([signal.sigwaitinfo(SIGNALS).si_signo]))
        finally:
            os._exit(0)

    def saw(self, number: int) -> bool:
        """Return True if the witness got this signal, too: the script has it already."""
        while number not in self._seen:
            if not select.select([self._reports], [], [], _WITNESS_S)[0]:
                return False
            data = os.read(self._reports, 64)
            if not data:
                return False
            self._seen += data
        self._seen.remove(number)
        return True

    def close(self) -> None:
        """End the process."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._reports)


def end_like(end: End) -> NoReturn:
    """End this process as the script has ended."""
    if end.signal:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        # The script has dumped its core. With 1 byte nothing is dumped, to no pipe either.
        least = 1 if hard == resource.RLIM_INFINITY or hard >= 1 else 0
        resource.setrlimit(resource.RLIMIT_CORE, (least, hard))
        if end.signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(end.signal, signal.SIG_DFL)
        unblocked: FrozenSet[int] = frozenset({end.signal})
        os.kill(os.getpid(), end.signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, unblocked)
    os._exit(end.code or 128 + end.signal if end.failed else 0)
