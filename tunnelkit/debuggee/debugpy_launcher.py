"""Runs a program under debugpy, as `python -m debugpy` does, minus what costs time.

    python -c START AGENT --connect 127.0.0.1:PORT --wait-for-client FILE | -m MODULE | -c CODE

AGENT is where this package lies (the agent's zip). Rules of this file: nothing of
tunnelkit stays importable in the program, and `__main__` holds nothing but `sys`.
"""

import importlib
import json
import os
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Callable, Iterable, List, Mapping, Optional, Protocol, Set, TypeVar

from . import postmortem
from .site_directories import SiteDirectories

#: Starts `main` below; the first argument is the agent's zip (or the directory of sources).
START = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
__import__("tunnelkit.debuggee.debugpy_launcher", fromlist=["main"]).main()
"""
_EXIT_POLL_S = 0.002
_LAST_POLL_S = 0.02
#: The directory of tk_guard.py.
GUARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guard")
#: A file of pydevd's own, whose frames it leaves out.
_NOT_SHOWN = "pydevd_runpy.py"

Function = TypeVar("Function", bound=Callable[..., object])


class _PyDB(Protocol):
    check_alive_thread: threading.Thread
    created_pydb_daemon_threads: Iterable[threading.Thread]


def hidden(function: Function) -> Function:
    """Keep a function that calls the program out of its call stack. With a stranger below it
    pydevd also takes `-c CODE` for a library's, and stops at none of its breakpoints."""
    code = function.__code__
    function.__code__ = code.replace(co_filename=_NOT_SHOWN)
    return function


@hidden
def main() -> None:
    """Be `python -m debugpy` with the arguments in sys.argv."""
    sites = SiteDirectories()
    leave_no_trace()
    prepare()
    run(sys.argv[1:], sites, tell=_teller())


def _teller() -> postmortem.Tell:
    """A function that sends the agent a message, if the agent listens to this process."""
    control = os.environ.pop(postmortem.CONTROL_VARIABLE, "")
    if control:
        os.set_inheritable(int(control), False)

    def tell(message: Mapping[str, object]) -> None:
        if control:
            os.write(int(control), json.dumps(message).encode() + b"\n")

    return tell


def leave_no_trace() -> None:
    """Take our entry off sys.path, and our package out of sys.modules."""
    del sys.path[0]
    if sys.path[:1] == [""]:
        # As `python -m` does; a bare "" would follow every chdir of the program.
        sys.path[0] = os.getcwd()
    for name in [name for name in sys.modules if name.split(".")[0] == "tunnelkit"]:
        del sys.modules[name]


def prepare() -> None:
    """Import debugpy and take out what it does for nobody. Raises ImportError without it."""
    import debugpy.server.cli

    if not _wants_log():
        # Once an editor has attached, debugpy lists all installed packages for a log that
        # nobody asked for, traced: 150 of the 190 ms from F5 to the first stop (scripts/bench).
        debugpy.common.log.describe_environment = lambda header: None
    _guard()
    _end_promptly()
    _stay_in_place(debugpy.server.cli)


def _guard() -> None:
    """Obey nobody else, here and in what the program starts; see guard/tk_guard.py."""
    sys.path.insert(0, GUARD)
    try:
        importlib.import_module("tk_guard")
    finally:
        sys.path.remove(GUARD)


@hidden
def _hide_start() -> None:
    """Keep the `-c` code that began this process (START and its kind) out of the call stack.

    pydevd takes it for the user's, at each attach. Where a release has other names for it, it is
    shown.
    """
    pydevd = importlib.import_module("pydevd")
    known = getattr(pydevd, "_CACHE_FILE_TYPE", None)
    ours = getattr(pydevd, "PYDEV_FILE", None)
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    if isinstance(known, dict) and ours is not None and frame.f_code.co_filename == "<string>":
        key = (frame.f_code.co_firstlineno, frame.f_code.co_filename, frame.f_code)
        known[key] = ours


def _wants_log() -> bool:
    return "DEBUGPY_LOG_DIR" in os.environ or any(word.startswith("--log-to") for word in sys.argv)


def _end_promptly() -> None:
    """At its end pydevd's threads and the program's wait for each other, half a second, until
    each gives up. Wait only for those that don't wait themselves. Where a release names
    things otherwise, its own pace stays."""
    pydevd = importlib.import_module("pydevd")
    name = "_PyDB__wait_for_threads_to_finish"
    if not hasattr(pydevd.PyDB, name):
        return
    waiting: Set[threading.Thread] = set()

    def wait(self: _PyDB, timeout: float) -> None:
        waiting.add(threading.current_thread())
        deadline = time.time() + timeout
        others = set(self.created_pydb_daemon_threads) - {self.check_alive_thread}
        while others - waiting and time.time() < deadline:
            time.sleep(_EXIT_POLL_S)
            others &= set(self.created_pydb_daemon_threads)

    setattr(pydevd.PyDB, name, wait)


def _stay_in_place(cli: ModuleType) -> None:
    """Have the program's own directory on sys.path as an absolute one, as Python puts it there.

    debugpy takes the words' own, or "": after a chdir of the program its modules were not found.
    """
    runpy = cli.runpy

    def placed(run: Callable[..., object]) -> Callable[..., object]:
        @hidden
        def run_in_place(*words: object, **named: object) -> object:
            if sys.path and not os.path.isabs(sys.path[0]):
                sys.path[0] = os.path.abspath(sys.path[0])
            return run(*words, **named)

        return run_in_place

    names = ("run_path", "run_module", "_run_module_as_main")
    found = {name: placed(getattr(runpy, name)) for name in names if hasattr(runpy, name)}
    setattr(cli, "runpy", SimpleNamespace(**found))  # noqa: B010 - its type says it has none


class _MainThreadEnds:
    """In place of the event that pydevd's CheckAliveThread waits on, 0.2 s at a time: waits
    for the end of the main thread itself."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def set(self) -> None:
        self._event.set()

    def wait(self, timeout: float) -> bool:
        main = threading.main_thread()
        if main.is_alive():
            main.join(timeout)
            return False
        # Other threads of the program may go on for long.
        return bool(self._event.wait(min(timeout, _LAST_POLL_S)))


@hidden
def _watch_main_thread() -> None:
    pydevd = importlib.import_module("pydevd")
    thread = getattr(pydevd.get_global_debugger(), "check_alive_thread", None)
    if thread is not None and hasattr(thread, "_wait_event"):
        event, thread._wait_event = thread._wait_event, _MainThreadEnds(thread._wait_event)
        # It sits in the old one: let it come round to ours.
        event.set()
        event.clear()


@hidden
def run(
    words: List[str],
    sites: SiteDirectories,
    before_code: Optional[Callable[[], None]] = None,
    tell: postmortem.Tell = lambda message: None,
) -> None:
    """`python -m debugpy WORDS`; `before_code` is called once an editor is there, and before
    a line of the program is read. sites: as when this interpreter started. tell: what the agent
    gets to hear."""
    import debugpy.server.cli

    sys.argv = ["-c", *words]
    keeps = postmortem.is_wanted()
    alone = {*words} & {"--wait-for-client"}
    _end_if(alone)

    @hidden  # a debugger that stops at the first line must find the program's
    def before() -> None:
        alone.clear()
        _watch_main_thread()
        _hide_start()
        sites.read_new()
        if before_code is not None:
            before_code()
        if keeps:
            hidden(postmortem.watch_threads)(tell)

    _after_client(before)
    main: Callable[[], None] = debugpy.server.cli.main
    code: Optional[int] = 0
    try:
        main()
    except Exception as error:
        code = 1
        if keeps:
            # Not in sys.excepthook, which programs (and their libraries) replace.
            postmortem.keep((type(error), error, error.__traceback__), tell)
        raise
    except SystemExit as error:
        given = error.code
        code = given & 0xFF if isinstance(given, int) else int(given is not None)
        raise
    except BaseException:
        code = None
        raise
    finally:
        _report_exit(code)


def _end_if(alone: Set[str]) -> None:
    """While `alone` holds anything, end the process once its agent is killed: nobody will bring it
    an editor, and debugpy would wait without end. Where a release names things otherwise, it does.
    """
    pydb = importlib.import_module("pydevd").PyDB
    name = "dispose_and_kill_all_pydevd_threads"
    dispose = pydb.__dict__.get(name)

    def wait(*args: object, **named: object) -> None:
        dispose(*args, **named)
        if alone:
            time.sleep(3)  # an agent that lives ends the process itself, in less
        if alone:
            os._exit(1)

    setattr(pydb, name, wait)


def _report_exit(code: Optional[int]) -> None:
    """Tell the session how the program ends: nobody but a rank's launcher sees that otherwise."""
    try:
        pydevd = importlib.import_module("pydevd")
        if code is not None:
            event = {"type": "event", "event": "exited", "body": {"exitCode": code}}
            pydevd.send_json_message(event)
    except Exception:  # noqa: S110
        pass  # a release without it


def _after_client(then: Callable[[], None]) -> None:
    import debugpy

    wait = debugpy.wait_for_client

    @hidden
    def wait_for_client() -> None:
        debugpy.wait_for_client = wait
        wait()
        then()

    debugpy.wait_for_client = wait_for_client
