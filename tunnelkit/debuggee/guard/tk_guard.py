"""A debuggee obeys its own user's agent only: who has the port that it dials is asked first.

The port stands in the command line of every Python that a debuggee starts. Where its agent was
killed, any user of the node may take that port, and would be obeyed without a question. pydevd's
own access tokens stand in the same command lines, for all to read.

pydevd imports this in each process that it is in, before it dials (its `PREIMPORT`), also in those
that a debuggee starts. A module of no package, so that nothing of tunnelkit stays importable in the
program. Where a release of debugpy names things otherwise, what it can't guard it leaves alone.
"""

import importlib
import os
import sys
import time
from socket import socket
from types import ModuleType
from typing import Callable, List

#: The agent accepts in its event loop; a node may be very busy.
_ACCEPTED_S = 10.0
_ASK_AGAIN_S = (0.001, 0.02)

#: This file's directory, and what has tunnelkit in it: the agent's zip, or its sources.
_HERE = os.path.dirname(os.path.abspath(__file__))
_AGENT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
_PREIMPORT = f"{_HERE};{os.path.splitext(os.path.basename(__file__))[0]}"


def _install() -> None:
    is_own = _own_user()
    _as_debugpy()
    defaults = importlib.import_module("_pydevd_bundle.pydevd_defaults")
    defaults.PydevdCustomization.PREIMPORT = _PREIMPORT
    monkey = importlib.import_module("_pydev_bundle.pydev_monkey")
    _preimport_in_code(monkey, defaults)
    _leave_children_alone(monkey)
    comm = importlib.import_module("_pydevd_bundle.pydevd_comm")
    dial = getattr(comm, "start_client", None)
    if dial is not None:
        guarded = _guarded(dial, is_own)
        # pydevd itself may be the program that was started.
        for name in ("_pydevd_bundle.pydevd_comm", "pydevd", "__main__"):
            module = sys.modules.get(name)
            if getattr(module, "start_client", None) is dial:
                setattr(module, "start_client", guarded)  # noqa: B010 - its type says it has none
    _forget_importers()


def _forget_importers() -> None:
    """`importlib.invalidate_caches` has each of them read the agent's zip again, and a debugger
    traces that: 2 ms each (scripts/bench).
    """
    for entry in list(sys.path_importer_cache):
        if entry == _AGENT or entry.startswith(os.path.join(_AGENT, "tunnelkit")):
            sys.path_importer_cache.pop(entry, None)


def _own_user() -> Callable[[socket], bool]:
    """A function that is true if the other end of a connected socket is this same user's."""
    sys.path.insert(0, _AGENT)
    try:
        peers = importlib.import_module("tunnelkit.mux.peer_credentials")
    finally:
        sys.path.remove(_AGENT)
    for name in [name for name in sys.modules if name.split(".")[0] == "tunnelkit"]:
        del sys.modules[name]

    def is_own(sock: socket) -> bool:
        peer, own = sock.getpeername(), sock.getsockname()
        if not sys.platform.startswith("linux") or not str(peer[0]).startswith("127."):
            return True  # nothing tells; or it is not the agent that is dialled
        deadline, pause_s = time.monotonic() + _ACCEPTED_S, _ASK_AGAIN_S[0]
        while True:
            owner = peers.socket_owner(peer, own)
            # Nobody's before it is accepted.
            if owner is not None or time.monotonic() > deadline:
                return bool(owner == os.getuid())
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _ASK_AGAIN_S[1])

    return is_own


def _as_debugpy() -> None:
    """Do what debugpy has pydevd import in processes that a debuggee starts."""
    vendored = "debugpy._vendored.force_pydevd"
    if vendored in sys.modules:
        return
    pydevd = importlib.import_module("_pydevd_bundle").__file__ or ""
    place = pydevd
    for _ in range(5):  # site-packages/debugpy/_vendored/pydevd/_pydevd_bundle/__init__.py
        place = os.path.dirname(place)
    sys.path.insert(0, place)
    try:
        importlib.import_module(vendored)
    finally:
        sys.path.remove(place)


def _preimport_in_code(monkey: ModuleType, defaults: ModuleType) -> None:
    """Add the guard to `python -c CODE`.

    pydevd puts a line there that names what to import; this is missing in it.
    """
    make = getattr(monkey, "_get_python_c_args", None)
    if make is None:
        return

    def with_preimport(*words: object) -> object:
        code = make(*words)
        protocol = importlib.import_module("_pydevd_bundle.pydevd_constants").get_protocol()
        given = f"pydevd.config({protocol!r}, {defaults.PydevdCustomization.DEBUG_MODE!r}"
        wanted = f"{given}, {_PREIMPORT!r})"
        if isinstance(code, bytes):
            return code.replace(given.encode() + b")", os.fsencode(wanted), 1)
        return code.replace(given + ")", wanted, 1)

    setattr(monkey, "_get_python_c_args", with_preimport)  # noqa: B010


def _leave_children_alone(monkey: ModuleType) -> None:
    """Let what a program starts after its debugger was taken off it be no debuggee.

    pydevd's own `os.fork` and `exec` stay in it: a child would dial a port where nobody serves it,
    and wait without end, or fail.
    """
    patches = getattr(monkey, "_get_apply_arg_patching", None)
    if patches is None:
        return
    constants = importlib.import_module("_pydevd_bundle.pydevd_constants")

    def patches_while_debugged() -> bool:
        debugger = constants.get_global_debugger()
        return bool(patches()) and not (debugger is None or debugger.pydb_disposed)

    setattr(monkey, "_get_apply_arg_patching", patches_while_debugged)  # noqa: B010


def _guarded(
    dial: Callable[..., socket], is_own: Callable[[socket], bool]
) -> Callable[..., socket]:
    def start_client(*address: object) -> socket:
        sock = dial(*address)
        try:
            if is_own(sock):
                return sock
        except OSError:
            pass  # it has hung up already
        sock.close()
        raise ConnectionRefusedError("the debugger's port is not this user's any more")

    return start_client


__all__: List[str] = []
_install()
