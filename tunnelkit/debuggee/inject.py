"""Injects debugpy into a running Python, as `debugpy --pid` does, and the guard after it.

    python -c INJECT AGENT --connect HOST:PORT --pid PID

The program runs on meanwhile, and until an editor comes. The guard (guard/tk_guard.py) must be in
the process before it dials, and before it starts another one, which would obey the port's owner,
any user by then. debugpy has no way to inject more than itself, so the code that it injects is
given one more piece here.
"""

import importlib
import os
import runpy
import sys
from typing import Callable

from tunnelkit.debuggee import debugpy_launcher

#: As a program, with where this code lies as its first argument.
INJECT = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
__import__("tunnelkit.debuggee.inject", fromlist=["main"]).main()
"""
_GUARD = """\
import sys
sys.path.insert(0, {place!r})
try:
    import tk_guard
finally:
    sys.path.remove({place!r})
"""
#: `debugpy.connect` waits for an editor, with the program's thread in the injector's hands: the
#: program would stand still until F5, and die if gdb is ended before. `listen` does not wait.
_NO_WAIT = """\
try:
    import debugpy.server.api as api
    settrace = api._settrace
    def connecting(*args, **kwargs):
        api._settrace = settrace
        return settrace(*args, **dict(kwargs, wait_for_ready_to_run=False))
    api._settrace = connecting
except (ImportError, AttributeError):
    pass
"""
#: debugpy reads its "mode" after pydevd was imported, in the way that an injection needs, and right
#: before it dials. So the guard is put in by who reads that.
_CALL = "attach_pid_injected.attach(setup)"
_BEFORE_THE_DIAL = """\
class Setup(dict):
    def __getitem__(self, key):
        if key == "mode":
            exec(guard, dict())
        return dict.__getitem__(self, key)
guard = {guard!r}
guarded = Setup(given)
"""


def main() -> None:
    """Be `python -m debugpy` with the arguments in sys.argv."""
    debugpy_launcher.leave_no_trace()
    try:
        _inject_also(_GUARD.format(place=debugpy_launcher.GUARD))
    except ImportError:
        pass  # debugpy says itself that it is not there
    runpy.run_module("debugpy", run_name="__main__", alter_sys=True)


def _inject_also(source: str) -> None:
    # No quote may be in it (debugpy hands it to gdb as an argument).
    also = f"exec({_quoteless(source)},dict())"
    first = _quoteless(_BEFORE_THE_DIAL.format(guard=source + _NO_WAIT))
    given = f"(lambda names:(exec({first},names),names)[1])(dict(given=setup)).popitem()[1]"

    def guarded(code: str) -> str:
        # Where a release names things otherwise, the guard comes after the dial.
        return code.replace(_CALL, _CALL.replace("setup", given), 1) + also

    vendored = importlib.import_module("debugpy._vendored")
    place = os.path.dirname(os.path.abspath(str(vendored.__file__)))
    sys.path.append(os.path.join(place, "pydevd", "pydevd_attach_to_process"))
    by_gdb = importlib.import_module("add_code_to_python_process")
    run: Callable[..., object] = by_gdb.run_python_code

    def run_python_code(pid: int, code: str, *words: object, **more: object) -> object:
        return run(pid, guarded(code), *words, **more)

    setattr(by_gdb, "run_python_code", run_python_code)  # noqa: B010
    remote = getattr(sys, "remote_exec", None)  # Python 3.14
    if remote is not None:

        def remote_exec(pid: int, path: str) -> None:
            with open(path) as file:
                code = file.read()
            with open(path, "w") as file:
                file.write(guarded(code + "\n") + "\n")
            remote(pid, path)

        setattr(sys, "remote_exec", remote_exec)  # noqa: B010


def _quoteless(source: str) -> str:
    return f"bytes({list(source.encode())}).decode()"
