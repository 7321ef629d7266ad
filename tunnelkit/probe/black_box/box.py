"""The black box of a job: watches its processes and memory, and keeps what it saw in a file.

`probe box DIRECTORY STATUS [step] [log]`: DIRECTORY is tk's on the cluster, STATUS the file in
which the job's script says which pid tk's agent has, and how it ended. step: one of a job's nodes,
so the file's name has the node. log: the script's stderr is the program's: its size shows progress.

The script starts the box beside the agent, so that the agent's end is not the box's. USR2 of the
script, or the script's own end, ends the box. It holds nothing that a job could wait for.
"""

import os
import re
import resource
import signal
import socket
import stat
import sys
import time
from typing import List, Mapping, Optional

from tunnelkit.probe.black_box import box_file
from tunnelkit.probe.black_box.box_record import Line, Record
from tunnelkit.probe.black_box.box_watch import Watch, plain
from tunnelkit.probe.processes import read_process

_LOOK_S, _SAMPLE_S, _MINUTE_S, _WRITE_S = 1.0, 5.0, 60.0, 30.0
#: CPU time: a share of one core since it began, and this much more at once.
_SHARE, _MORE_S = 0.005, 0.5
_MOST_PAUSE_S = 20.0
_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
_MOST_LOG = 64 * 1024


def main(words: List[str]) -> int:
    """Keep a box until the job's script has ended."""
    if len(words) < 2 or not set(words[2:]) <= {"step", "log"}:
        print("usage: probe box DIRECTORY STATUS [step] [log]", file=sys.stderr)
        return 2
    # The end of the script may come before the first reading.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    script = os.getppid()
    directory = os.path.join(words[0], "boxes")
    job = box_file.job_name(os.environ)
    if not job or not box_file.open_directory(directory):
        return 1
    os.chdir("/")
    _mark_used(sys.argv[0])
    box_file.remove_old(directory)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    number = box_file.attempt(os.environ, directory, job)
    name = box_file.file_name(job, number, node if "step" in words else "")
    head = _head(job, number, node, holder="log" not in words)
    file, record = box_file.BoxFile(directory, name), Record(head)
    Box(script, words[1], file, record, os.environ, log_counts="log" in words).run()
    return 0


class Box:
    """Watches until the script has ended. script: its pid. status: see the module."""

    def __init__(
        self,
        script: int,
        status: str,
        file: box_file.BoxFile,
        record: Record,
        environ: Mapping[str, str],
        *,
        log_counts: bool = False,
    ) -> None:
        self._script = script
        self._status = status
        self._file = file
        self._record = record
        self._watch = Watch(environ, record, {os.getpid(), script})
        self._log = _log_of(script)
        self._log_counts = log_counts
        self._log_bytes: Optional[int] = None
        self._agent: Optional[int] = None
        self._over = False
        self._begun, self._spent_before_s = time.monotonic(), time.process_time()
        self._next_sample = self._next_minute = self._next_write = 0.0

    def run(self) -> None:
        """Look, keep and write until the end."""
        try:
            while not self._turn():
                pass
        finally:
            self._watch.close()

    def _turn(self) -> bool:
        """Look once, keep and write what is due, and wait; True after the last write."""
        now = time.monotonic()
        self._find_agent()
        self._watch.look(time.time())
        is_minute = now >= self._next_minute
        if now >= self._next_sample:
            self._next_sample = now + _SAMPLE_S
            if is_minute:
                self._next_minute = now + _MINUTE_S
                self._read_log()
            self._watch.sample(time.time(), self._log_bytes if self._log_counts else None)
            if is_minute:
                self._watch.minute()
        over = self._over or os.getppid() != self._script
        if over or now >= self._next_write:
            self._next_write = now + _WRITE_S
            self._write(last=over)
        if not over:
            spent_s = time.process_time() - self._spent_before_s
            over_s = spent_s - _MORE_S - _SHARE * (now - self._begun)
            self._wait(min(max(_LOOK_S, over_s / _SHARE), _MOST_PAUSE_S))
        return over

    def _wait(self, pause_s: float) -> None:
        """Wait for a signal, or until it is time to look again."""
        info = signal.sigtimedwait(_SIGNALS, pause_s)
        if info is None:
            return
        if info.si_signo == signal.SIGUSR2 and info.si_pid == self._script:
            self._over = True
            return
        self._record.events.append(_signal_line(info, time.time()))
        if info.si_signo == signal.SIGTERM:
            # The end may come at once now.
            self._watch.look(time.time())
            self._write(last=False)

    def _find_agent(self) -> None:
        if self._agent is None:
            match = re.match(r"running \S+ ([0-9]{1,10})$", _read(self._status).strip())
            if match:
                self._agent = int(match.group(1))
                self._watch.leave_out(self._agent)

    def _write(self, *, last: bool) -> None:
        now = time.time()
        self._read_log()
        if last:
            match = re.match(r"ended ([0-9]{1,3})$", _read(self._status).strip())
            code = int(match.group(1)) if match else None
            self._record.end = {"time_s": now, "code": code, "agent": self._agent}
        self._watch.count()
        self._file.write(self._record.encode(now), lasting=last)

    def _read_log(self) -> None:
        """Read the end of the job's log, if it has grown."""
        path = self._log
        if not path:
            return
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size != self._log_bytes:
                    file.seek(max(0, size - _MOST_LOG))
                    text = file.read(_MOST_LOG).decode("utf-8", "replace")
                    self._record.log = path[-1000:], text
                    self._log_bytes = size
        except OSError:
            pass


def _head(job: str, number: int, node: str, *, holder: bool) -> Line:
    """Return the first line. holder: the script only holds tk's agent; programs come and go."""
    limit = resource.getrlimit(resource.RLIMIT_CPU)[1]
    return {
        "job": job,
        "attempt": number,
        "node": plain(node, 100),
        "uid": os.getuid(),
        "holds_agent": holder,
        "started_s": round(time.time(), 1),
        "cpu_limit_s": None if limit == resource.RLIM_INFINITY else limit,
    }


def _signal_line(info: signal.struct_siginfo, now_s: float) -> Line:
    """Return who sent a signal: si_code 0 is kill(), 0x80 the kernel."""
    sent = info.si_code <= 0 and info.si_pid > 0
    sender = read_process(info.si_pid) if sent else None
    return {
        "kind": "signal",
        "signal": info.si_signo,
        "time_s": round(now_s, 2),
        "uid": info.si_uid if sent else None,
        "pid": info.si_pid if sent else None,
        "name": plain(sender.name, 20) if sender is not None else "",
    }


def _log_of(script: int) -> str:
    """Return the path of the file that is the script's stderr; "" if it is no file."""
    try:
        path = os.readlink(f"/proc/{script}/fd/2")
        return path if stat.S_ISREG(os.stat(path).st_mode) else ""
    except OSError:
        return ""


def _mark_used(path: str) -> None:
    """Say that the zip is in use: unused ones are removed."""
    try:
        os.utime(path)
    except OSError:
        pass


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(200)
    except OSError:
        return ""
