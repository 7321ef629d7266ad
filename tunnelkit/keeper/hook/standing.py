"""Keeps a program at the exception that it dies of, until the keeper lets it go.

Sent beside program_hook.py, and read only once the exception is there. The program is found on its
node by its name (`comm`), and takes requests in a file without a name, which only its own user can
open (/proc/PID/fd): tk's agent writes there which of its ports to dial. No port is opened.
"""

import importlib
import json
import os
import socket
import sys
import tempfile
import threading
import time
from types import ModuleType, TracebackType
from typing import Dict, Iterator, List, Mapping, Optional

#: Of the process, and in the name of the file that takes requests.
NAME = "tk-stands"
_LOOK_S, _ANSWER_S, _BEAT_S = 0.25, 1.0, 30.0
#: The keeper's first answer comes within this time, or nobody keeps the job.
_FIRST_ANSWER_S = 90.0
#: The keeper ends the keeping; this long after it, the program ends without it.
_PATIENCE_S = 60.0
#: An editor that does not let go of the program at its end is left behind.
_LEAVE_S = 5.0
_MOST_BYTES = 4096


def stand(directory: str, value: BaseException, is_printed: bool) -> None:
    """Return once the program is let go. is_printed: its traceback is in the log already."""
    one = Standing(directory, value)
    if one.is_over():
        return
    try:
        one.begin(is_printed)
        one.wait()
    finally:
        one.end()


class Standing:
    """One program at its exception. directory: where the keeper answers."""

    def __init__(self, directory: str, value: BaseException) -> None:
        self._directory = directory
        self._value = value
        self._host = socket.gethostname()
        self._file = os.path.join(directory, f"{self._host}.{os.getpid()}.json")
        self._comm = _read("/proc/self/comm").strip()
        self._until = time.time() + _FIRST_ANSWER_S
        self._requests = -1
        self._debugger: Optional[ModuleType] = None
        self._shown = False
        self._over = threading.Event()
        #: The main thread waits no more, and is in no editor's hands.
        self._left = threading.Event()

    def is_over(self) -> bool:
        """Look at the keeper's answer; return True if the program is let go."""
        try:
            answer = json.loads(_read(os.path.join(self._directory, "answer.json")))
            if answer.get("go"):
                return True
            until = answer.get("until_s")
            if isinstance(until, (int, float)):
                self._until = until + _PATIENCE_S
        except (ValueError, AttributeError):
            if not os.path.isdir(self._directory):
                return True
        return time.time() > self._until

    def begin(self, is_printed: bool) -> None:
        """Tell the keeper, the log and tk's agent that the program stands here."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                pass
        self._requests = _nameless_file()
        self._set_name(NAME)
        facts = self._facts()
        draft = self._file + ".new"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(facts, file)
        os.replace(draft, self._file)
        later = "" if is_printed else "; its traceback follows once it is let go"
        say(
            f"process {os.getpid()} on {self._host} stands at {facts['error']} "
            f"({facts['where']}){later}"
        )

    def end(self) -> None:
        """Be the process again that it was."""
        self._over.set()
        self._set_name(self._comm)
        if self._requests >= 0:
            os.close(self._requests)
        try:
            os.unlink(self._file)
        except OSError:
            pass

    def wait(self) -> None:
        """Wait to be let go; meanwhile do what tk's agent asks, and show editors the exception."""
        _start_beside(threading.Thread(target=self._watch))
        while not self._over.wait(_LOOK_S):
            request = self._request()
            if request:
                try:
                    self._dial(request)
                except Exception as error:
                    say(f"the debugger can't be brought in: {error!r}")
            self._show_to_editor()
        self._left.set()

    # -- the keeper ---------------------------------------------------------

    def _watch(self) -> None:
        """Wait for the keeper's word beside the main thread, which an editor may hold."""
        beat = time.monotonic()
        while not self._over.wait(_ANSWER_S):
            if self.is_over():
                break
            if time.monotonic() - beat > _BEAT_S:
                beat = time.monotonic()
                try:
                    os.utime(self._file)
                except OSError:
                    pass
        self._over.set()
        if self._debugger is None:
            return
        _start_beside(threading.Timer(_LEAVE_S, self._leave_editor))
        try:
            # Lets go of the main thread, if it is stopped.
            self._debugger.stoptrace()
        except Exception as error:
            say(f"the debugger did not end: {error!r}")

    def _leave_editor(self) -> None:
        """End the process if the debugger still holds its main thread."""
        if not self._left.is_set():
            self.end()
            os._exit(1)

    # -- editors ------------------------------------------------------------

    def _request(self) -> "Dict[str, object]":
        """Return what the agent asks; {} if nothing."""
        size = os.fstat(self._requests).st_size
        if not size:
            return {}
        data = os.pread(self._requests, _MOST_BYTES, 0)
        try:
            found = json.loads(data.decode("utf-8"))
        except ValueError:
            return {}  # written in part
        os.ftruncate(self._requests, 0)
        return found if isinstance(found, dict) else {}

    def _dial(self, request: "Mapping[str, object]") -> None:
        """Bring debugpy in, and have it dial the agent; see debuggee/inject.py."""
        lent, agent = str(request.get("pythonpath") or ""), str(request["agent"])
        with_lent = [lent] if lent else []
        sys.path[:0] = with_lent
        os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
        try:
            debugpy = importlib.import_module("debugpy")
            importlib.import_module("debugpy.server")
            pydevd = importlib.import_module("pydevd")
        finally:
            for entry in with_lent:
                sys.path.remove(entry)
        guard = os.path.join(agent, "tunnelkit", "debuggee", "guard")
        sys.path.insert(0, guard)
        try:
            importlib.import_module("tk_guard")
        finally:
            sys.path.remove(guard)
        before = pydevd.get_global_debugger()
        if before is not None:
            before.dispose_and_kill_all_pydevd_threads()
        self._debugger, self._shown = pydevd, False
        debugpy.connect(("127.0.0.1", int(str(request["port"]))))
        debugger = pydevd.get_global_debugger()
        leaves = debugger.on_disconnect

        def on_disconnect() -> None:
            # The next one may be there before this class looks again.
            self._shown = False
            leaves()

        debugger.on_disconnect = on_disconnect

    def _show_to_editor(self) -> None:
        """Stop at the exception, once for each editor that comes."""
        if self._debugger is None:
            return
        debugger = self._debugger.get_global_debugger()
        if debugger is not None and debugger.is_attached() and not self._shown:
            self._shown = True
            excinfo = (type(self._value), self._value, self._value.__traceback__)
            if hasattr(debugger, "trigger_exception_handler"):
                debugger.trigger_exception_handler(excinfo, as_uncaught=False)
            else:
                info = debugger.set_additional_thread_info(threading.current_thread())
                info.is_tracing += 1
                try:
                    thread = threading.current_thread()
                    debugger.stop_on_unhandled_exception(debugger, thread, info, excinfo)
                finally:
                    info.is_tracing -= 1
            if not self._over.is_set():
                say("the program still stands at its exception; `tk keep --release` lets it go")

    # -- itself ---------------------------------------------------------------

    def _facts(self) -> "Dict[str, object]":
        text = str(self._value).splitlines()
        name = type(self._value).__name__
        where = ""
        for frame in _frames(self._value.__traceback__):
            path = frame.tb_frame.f_code.co_filename
            if not where or _is_own(path):
                where = f"{os.path.basename(path)}:{frame.tb_lineno}"
        return {
            "host": self._host,
            "node": os.environ.get("SLURMD_NODENAME") or self._host,
            "pid": os.getpid(),
            "pid_space": pid_space(),
            "error": f"{name}: {text[0][:200]}" if text else name,
            "where": where,
            "rank": _rank(),
            "since_s": round(time.time()),
        }

    def _set_name(self, name: str) -> None:
        try:
            with open("/proc/self/comm", "w") as file:
                file.write(name)
        except OSError:
            pass


def _start_beside(thread: threading.Thread) -> None:
    """Start a thread that a debugger leaves alone when it stops all."""
    thread.daemon = True
    for mark in ("pydev_do_not_trace", "is_pydev_daemon_thread"):
        setattr(thread, mark, True)
    thread.start()


def _nameless_file() -> int:
    """Open a file that has no name in any directory, but one in /proc."""
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create(NAME)
        except OSError:
            pass
    descriptor, path = tempfile.mkstemp(prefix=NAME + ".")
    os.unlink(path)
    return descriptor


def pid_space() -> str:
    """Return what tells a container's process ids from the node's."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _rank() -> Optional[int]:
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None


def _frames(traceback: Optional[TracebackType]) -> "Iterator[TracebackType]":
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_own(path: str) -> bool:
    """Return True for a file of the user's, as far as its name shows."""
    return not path.startswith(("<", os.path.dirname(os.__file__))) and "site-packages" not in path


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def say(text: str) -> None:
    """Write a line into the job's log."""
    try:
        sys.stderr.write(f"tk: {text}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


__all__: List[str] = ["stand"]
