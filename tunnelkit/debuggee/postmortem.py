"""Keeps a program that has died of an exception while no editor was on it, until one comes.

Rules of this file: nothing here is read before an exception has come, and what fails here
leaves the program to the end that it would have had.
"""

import importlib
import os
import sys
import threading
from types import TracebackType
from typing import Callable, Dict, Mapping, Optional, Tuple, Type

#: In the environment of a loop with --post-mortem.
VARIABLE = "TK_POST_MORTEM"
#: There, too: a descriptor to tell the agent on, of a debuggee that was not forked.
CONTROL_VARIABLE = "TK_CONTROL_FD"

Tell = Callable[[Mapping[str, object]], None]
Excinfo = Tuple[Type[BaseException], BaseException, Optional[TracebackType]]


def is_wanted() -> bool:
    """True once if this program is kept after an exception; what it starts is not."""
    return os.environ.pop(VARIABLE, "") == "1"


def watch_threads(tell: Tell) -> None:
    """Keep the program also for an exception that ends one of its threads."""
    before = threading.excepthook

    def excepthook(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            keep((args.exc_type, args.exc_value, args.exc_traceback), tell)
        before(args)

    threading.excepthook = excepthook


def keep(excinfo: Excinfo, tell: Tell) -> None:
    """Wait for an editor and show it the exception; returns once it lets the program go on.
    With an editor on it nothing is done: that one has seen it."""
    try:
        import debugpy

        if excinfo[2] is None or debugpy.is_client_connected():
            return
        tell({"kept": describe(excinfo)})
        debugpy.wait_for_client()
        _show(excinfo)
    except Exception as error:
        sys.stderr.write(f"tk: the program could not be kept: {error}\n")


def describe(excinfo: Excinfo) -> Dict[str, str]:
    """The exception in a line, and where it was raised, as a JSON object."""
    kind, value, traceback = excinfo
    text = str(value).splitlines()
    where = ""
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if not where or _is_own(name):
            where = f"{os.path.basename(name)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    error = f"{kind.__name__}: {text[0][:200]}" if text else kind.__name__
    return {"error": error, "where": where}


def _is_own(name: str) -> bool:
    """True for a file of the user's, as far as its name shows."""
    library = os.path.dirname(os.__file__)
    return not name.startswith(("<", library)) and "site-packages" not in name


def _show(excinfo: Excinfo) -> None:
    """Stop at the exception, as pydevd does at one that it has seen coming."""
    debugger = importlib.import_module("pydevd").get_global_debugger()
    if hasattr(debugger, "trigger_exception_handler"):
        # Also where the editor asked for no stop: it came for this.
        debugger.trigger_exception_handler(excinfo, as_uncaught=False)
        return
    thread = threading.current_thread()
    info = debugger.set_additional_thread_info(thread)
    info.is_tracing += 1
    try:
        debugger.stop_on_unhandled_exception(debugger, thread, info, excinfo)
    finally:
        info.is_tracing -= 1
