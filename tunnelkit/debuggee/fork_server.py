"""A process that has debugpy (and what else was asked for) imported, and forks debuggees.

    python -c SERVE AGENT FD PRELOAD

FD is a unix socket to the agent, PRELOAD the modules to import, comma-separated. JSON
lines both ways, an answer with the `id` of its question:

    <- {"importing": "torch"}
    <- {"ready": {"imports": {"torch": 1.93}, "rss_bytes": 1234}}, or {"failed": "why"}
    -> {"fork": {"words": [...], "cwd": "...", "env": {...}, "tag": ["old", "new"]}}
       with three descriptors: stdout, stderr, and the debuggee's own control socket
    <- {"pid": 4711}, or {"unfit": "why it can't be forked", "stale": false}
    -> {"check": {}}
    <- {"changed": "what has changed on the disk since it was imported", or null}

A debuggee is forked twice, so that it is the agent's own child (a subreaper), and does
nothing before the agent says so: on its control socket it gets "a" when the agent has taken
it over, and "g" when its program may be read. It tells there what imports took.

Rules of this file: no thread is ever started here, and nothing of the program is imported
but what PRELOAD names.
"""

import gc
import importlib
import json
import os
import socket
import sys
import time
import traceback
from typing import Callable, Dict, List, Mapping, Optional, Tuple, TypedDict

from tunnelkit.debuggee import debugpy_launcher, process_mark
from tunnelkit.debuggee.fork_safety import ImportRecorder, Signatures, unfit
from tunnelkit.debuggee.import_timer import watch_imports
from tunnelkit.debuggee.library_code import as_library
from tunnelkit.debuggee.site_directories import SiteDirectories

#: Starts a server; what it returns is called last, in the debuggee alone.
SERVE = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
__import__("tunnelkit.debuggee.fork_server", fromlist=["serve"]).serve()()
"""
_DESCRIPTORS = 3
#: What a session, or a fork, imports on its first use: done here once instead of on every F5.
_LATE_IMPORTS = (
    "ctypes",
    "runpy",
    "_pydevd_bundle.pydevd_runpy",
    "_pydevd_bundle.pydevd_json_debug_options",
    "_pydevd_bundle.pydevd_net_command_factory_json",
    "_pydevd_bundle.pydevd_process_net_command_json",
)

Program = Callable[[], None]


class _Fork(TypedDict):
    words: List[str]
    cwd: str
    env: Dict[str, str]
    tag: List[str]


class _Request(TypedDict, total=False):
    id: int
    fork: _Fork


def serve() -> Program:
    """Fork debuggees until the agent hangs up; in one of them, return its program."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    preload = [name for name in sys.argv[2].split(",") if name]
    sites = SiteDirectories()
    debugpy_launcher.leave_no_trace()
    before = dict(os.environ)
    debugpy_launcher.prepare()
    for name in _LATE_IMPORTS:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    with ImportRecorder() as reading:
        took = {name: _import(name, sock) for name in preload}
    changes = _changes(before)
    signatures = Signatures.of_loaded(preload, reading.seen)
    gc.collect()
    gc.freeze()
    _say(sock, {"ready": {"imports": took, "rss_bytes": _rss_bytes()}})
    while True:
        request, descriptors = _hear(sock)
        if request is None:
            os._exit(0)
        changed = signatures.changed()
        answer: Dict[str, object] = {"changed": changed}
        if "fork" in request:
            why = changed or unfit()
            answer = {"unfit": why, "stale": why == changed}
            if why is None:
                answer = {"pid": _fork_twice()}
                if answer["pid"] == 0:
                    sock.close()
                    return _become_debuggee(request["fork"], descriptors, changes, sites)
        _close(descriptors)
        _say(sock, {"id": request["id"], **answer})


def _import(name: str, sock: socket.socket) -> float:
    """Import a module; the seconds that it took. If it can't be, tell and end."""
    _say(sock, {"importing": name})
    started = time.monotonic()
    try:
        importlib.import_module(name)
    except BaseException as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
        _say(sock, {"failed": text})
        raise SystemExit(1) from None
    return round(time.monotonic() - started, 3)


def _fork_twice() -> int:
    """0 in the debuggee, its pid in the server."""
    sys.stdout.flush()
    sys.stderr.flush()
    receiver, sender = os.pipe()
    between = os.fork()
    if between:
        os.close(sender)
        with os.fdopen(receiver, "rb") as pipe:
            pid = int(pipe.read() or b"0")
        os.waitpid(between, 0)
        if not pid:
            raise OSError("the fork failed")
        return pid
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)
    if pid:
        os.write(sender, b"%d" % pid)
        os._exit(0)
    os.close(sender)
    os.close(receiver)
    return 0


def _changes(before: Dict[str, str]) -> Dict[str, Optional[str]]:
    """The changes that imports made to the environment: the program's own would have made them,
    too.
    """
    after = os.environ
    return {
        name: after.get(name) for name in {**before, **after} if before.get(name) != after.get(name)
    }


def _become_debuggee(
    request: _Fork,
    descriptors: List[int],
    changes: Dict[str, Optional[str]],
    sites: SiteDirectories,
) -> Program:
    """All that must be as in a process just started; then wait for the agent."""
    os.setsid()
    out, err, control_fd = descriptors
    os.dup2(out, 1)
    os.dup2(err, 2)
    _close([out, err])
    old, new = request["tag"]
    process_mark.retag(old, new)
    process_mark.put_on(new)
    os.environ.clear()
    os.environ.update(request["env"])
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    # Python takes descriptors from a message as they come: open for whatever is executed.
    os.set_inheritable(control_fd, False)
    control = socket.socket(fileno=control_fd)
    if control.recv(1) != b"a":
        os._exit(1)
    try:
        os.chdir(request["cwd"])
    except OSError as error:
        print(f"tk: {request['cwd']}: {error.strerror}", file=sys.stderr)
        os._exit(1)
    importlib.invalidate_caches()
    _reseed()

    def before_code() -> None:
        if control.recv(1) != b"g":
            os._exit(1)
        # What was listed before the fork may have changed since.
        importlib.invalidate_caches()
        watch_imports(as_library(lambda modules: _say(control, {"imported": modules})))

    return debugpy_launcher.hidden(
        lambda: debugpy_launcher.run(
            request["words"], sites, before_code, lambda message: _say(control, message)
        )
    )


def _reseed() -> None:
    """Every fork would draw the same numbers; a process just started doesn't."""
    random = sys.modules.get("numpy.random")
    seed = getattr(random, "seed", None)
    if callable(seed):
        seed()


def _rss_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


@as_library
def _say(sock: socket.socket, message: Mapping[str, object]) -> None:
    try:
        sock.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        pass


def _hear(sock: socket.socket) -> Tuple[Optional[_Request], List[int]]:
    """The next request with its descriptors; None when the agent has hung up."""
    data, descriptors = b"", []  # type: bytes, List[int]
    while not data.endswith(b"\n"):
        size = socket.CMSG_SPACE(_DESCRIPTORS * 4)
        try:
            chunk, ancillary, _, _ = sock.recvmsg(64 * 1024, size)
        except OSError:
            chunk, ancillary = b"", []
        if not chunk:
            _close(descriptors)
            return None, []
        data += chunk
        for level, kind, packed in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                count = len(packed) // 4
                descriptors += memoryview(packed)[: 4 * count].cast("i").tolist()
    request: _Request = json.loads(data)
    return request, descriptors


def _close(descriptors: List[int]) -> None:
    for fd in descriptors:
        os.close(fd)
