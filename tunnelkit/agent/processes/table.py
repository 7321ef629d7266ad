"""Every process the agent starts, each in its own process group, all reaped here.

The agent is a child subreaper: what its processes leave behind becomes its own
child, is reaped, and can be found and ended.
"""

import asyncio
import contextlib
import ctypes
import glob
import os
import signal
import subprocess
import time
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from tunnelkit.agent.processes.memory import oom_kills
from tunnelkit.debuggee import process_mark

if TYPE_CHECKING:
    from tunnelkit.messages.agent_calls import RunEndInfo

_PR_SET_CHILD_SUBREAPER = 36
#: In the environment of every process we start; marks its descendants as ours
#: even after they left the process group.
TAG = "TK_PROCESS"
_MAX_LOOKS = 4


class Exit(NamedTuple):
    """The end of a process: exit code, or the signal that ended it, and the time and memory it
    took. oom_kills: processes that the kernel killed for memory meanwhile, in the whole job or
    pod; 0 for one that ended well.
    """

    code: Optional[int]
    signal: Optional[str]
    duration_s: float
    peak_rss_bytes: int
    oom_kills: int = 0

    def describe(self) -> "RunEndInfo":
        """The end as a JSON object."""
        return {
            "code": self.code,
            "signal": self.signal,
            "duration_s": self.duration_s,
            "peak_rss_bytes": self.peak_rss_bytes,
            "oom_kills": self.oom_kills,
        }


class ChildProcess:
    """A started process and its group; `exited` is done once it was reaped.

    marked: what descends from it ends with it, even without an environment
    (debuggee/process_mark.py).
    """

    def __init__(
        self,
        pid: int,
        tag: str,
        popen: "Optional[subprocess.Popen[bytes]]" = None,
        *,
        marked: bool = False,
    ) -> None:
        self.pid = pid
        self.tag = tag
        self.marked = marked
        self.popen = popen
        self.started_s = time.monotonic()
        self._oom_kills = oom_kills()
        self.exited: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def oom_kills(self) -> int:
        """Processes killed for memory since this one was started."""
        before, now = self._oom_kills, oom_kills()
        return max(now - before, 0) if before is not None and now is not None else 0

    def signal(self, number: int) -> None:
        """Send a signal to the whole process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class ProcessTable:
    """Starts and reaps processes. One per agent, made in its event loop."""

    def __init__(self) -> None:
        self._live: Dict[int, ChildProcess] = {}
        self._count = 0
        #: True where orphans of what we start become our children.
        self.reaps_orphans = False

    def start(self) -> None:
        """Take over SIGCHLD and orphans of this process."""
        self.reaps_orphans = become_subreaper()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def spawn(
        self,
        argv: List[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        controlling_tty: bool = False,
        pass_fds: Sequence[int] = (),
        marked: bool = False,
    ) -> ChildProcess:
        """Start a process in a session and group of its own. Raises OSError."""
        tag = self.new_tag()
        environment = dict(env)
        environment[TAG] = tag
        prepare: Optional[Callable[[], None]] = _take_tty if controlling_tty else None
        with process_mark.on(tag if marked else None):
            popen = subprocess.Popen(
                argv,
                cwd=cwd,
                env=environment,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                close_fds=True,
                preexec_fn=prepare,
                pass_fds=pass_fds,
            )
        process = ChildProcess(popen.pid, tag, popen, marked=marked)
        self._live[popen.pid] = process
        return process

    def spawn_piped(
        self, argv: List[str], *, cwd: str, env: Mapping[str, str]
    ) -> Tuple[ChildProcess, List[int]]:
        """Start a process; return it with our ends of its stdin, stdout and stderr, which do not
        block. Raises OSError."""
        (stdin, to_it), (from_it, stdout), (errors, stderr) = (os.pipe() for _ in range(3))
        ours = [to_it, from_it, errors]
        try:
            process = self.spawn(argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        for fd in ours:
            os.set_blocking(fd, False)
        return process, ours

    def adopt(self, pid: int, tag: str) -> ChildProcess:
        """Take over a process that is our child though we didn't start it: one whose parent,
        which we started, has ended (`reaps_orphans`), and that has put on the tag's mark. It must
        not end before this is called."""
        process = ChildProcess(pid, tag, marked=True)
        self._live[pid] = process
        return process

    def of(self, pid: int) -> Optional[ChildProcess]:
        """The process of that pid, if we started it and it has not ended."""
        return self._live.get(pid)

    def new_tag(self) -> str:
        """A tag for a process to come. All tags of an agent are of one length."""
        self._count += 1
        return f"{os.getpid()}.{self._count:08d}"

    async def end(self, process: ChildProcess, grace_s: float) -> Exit:
        """End the process, its group and its strays: TERM, then KILL after `grace_s`.

        Returns once all of them are gone.
        """
        # Each is asked once: a program's handler may be at work on a checkpoint.
        asked = _tagged(process.tag)
        elsewhere = [pid for pid in asked if _group_of(pid) != process.pid]
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)
        for pid in elsewhere:
            _kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        pause = 0.005
        while True:
            left = self._left(process)
            strays = self._strays(process)
            if process.exited.done() and not left and not strays:
                return process.exited.result()
            if time.monotonic() >= deadline:
                process.signal(signal.SIGKILL)
                for pid in left | strays:
                    _kill(pid, signal.SIGKILL)
            for pid in strays - asked:
                _kill(pid, signal.SIGTERM)
            asked |= strays
            # Strays that are not our children give no event when they end.
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.1)

    async def end_all(self, grace_s: float) -> None:
        """End every process that is left."""
        await asyncio.gather(*(self.end(process, grace_s) for process in list(self._live.values())))

    def _left(self, process: ChildProcess) -> Set[int]:
        left = _tagged(process.tag)
        if not process.exited.done():
            left.add(process.pid)
        try:
            os.killpg(process.pid, 0)
            left.add(process.pid)
        except (ProcessLookupError, PermissionError):
            pass
        return left

    def _strays(self, process: ChildProcess) -> Set[int]:
        """Orphans of the run that are our children now and no process of the table, and all
        below them. To be asked after `_left`: what that still finds may have children."""
        found: Set[int] = set()
        if process.marked and self.reaps_orphans:
            for pid in _children(os.getpid()) - set(self._live):
                if process_mark.is_on(pid, process.tag):
                    found |= {pid} | _descendants(pid)
        return found

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self._live.pop(pid, None)
            if process is not None:
                self._ended(process, status, usage.ru_maxrss * 1024)

    def _ended(self, process: ChildProcess, status: int, peak_rss_bytes: int) -> None:
        duration_s = time.monotonic() - process.started_s
        if process.popen is not None:
            process.popen.returncode = -1  # reaped here: Popen must not wait for the number
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            try:
                name = signal.Signals(number).name
            except ValueError:
                name = f"signal {number}"
            how = Exit(None, name, duration_s, peak_rss_bytes, process.oom_kills())
        else:
            code = os.WEXITSTATUS(status)
            killed = process.oom_kills() if code else 0
            how = Exit(code, None, duration_s, peak_rss_bytes, killed)
        if not process.exited.done():
            process.exited.set_result(how)


def become_subreaper() -> bool:
    """Make orphaned descendants children of this process; False where the system can't."""
    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _take_tty() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _tagged(tag: str) -> Set[int]:
    """Live processes of this user that carry `tag` in their environment."""
    for _ in range(_MAX_LOOKS):
        found, whole = _look_for(tag)
        if found or whole:
            break
    return found


def _look_for(tag: str) -> Tuple[Set[int], bool]:
    """The processes of one scan.

    False if a process ended meanwhile: it may have left a child that the list was too old for.
    """
    needle = f"\0{TAG}={tag}\0".encode()
    found: Set[int] = set()
    whole = True
    own = os.getpid()
    try:
        entries = os.listdir("/proc")
    except OSError:
        return found, True
    for entry in entries:
        if not entry.isdigit() or int(entry) == own:
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                environment = b"\0" + file.read() + b"\0"
        except (FileNotFoundError, ProcessLookupError):
            whole = False
            continue
        except OSError:
            continue
        if needle in environment:
            found.add(int(entry))
    return found, whole


def _children(pid: int) -> Set[int]:
    """Children of all threads of a process. One pass may miss what another's end hides."""
    found: Set[int] = set()
    for _ in range(_MAX_LOOKS):
        seen = set(found)
        for path in glob.iglob(f"/proc/{pid}/task/*/children"):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                found.update(int(word) for word in file.read().split())
        if found == seen:
            break
    return found


def _descendants(pid: int) -> Set[int]:
    found: Set[int] = set()
    fresh = _children(pid)
    while fresh:
        found |= fresh
        fresh = {child for parent in fresh for child in _children(parent)} - found
    return found


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
