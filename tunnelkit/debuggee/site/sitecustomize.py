"""Found by every Python of a debugged job, as this directory comes first in PYTHONPATH.

Rules of this file: it can be read by any Python 3, does nothing without TK_RANKS, never hurts the
program that is about to start, and gives way to the user's own sitecustomize.
"""

import os
import sys


def _hook():  # type: () -> None
    site = os.path.dirname(os.path.abspath(__file__))
    room = os.path.dirname(site)
    # Under a name of its own, so that the program can't meet it as `tunnelkit`, nor it the
    # program's. Works from a directory and from a zip alike.
    package = type(sys)("_tunnelkit_debuggee")
    package.__path__ = [room]
    sys.modules[package.__name__] = package
    __import__("_tunnelkit_debuggee.rank_hook")
    sys.modules["_tunnelkit_debuggee.rank_hook"].install(site)


def _give_way() -> None:
    """Be the next sitecustomize of sys.path, as if we had never been here."""
    ours = sys.modules.pop("sitecustomize", None)
    site = os.path.dirname(os.path.abspath(__file__))
    entries = [entry for entry in sys.path if os.path.abspath(entry) == site]
    sys.path[:] = [entry for entry in sys.path if entry not in entries]
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        # A launcher may make the PYTHONPATH of its ranks from it.
        sys.path[:0] = entries
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


if "TK_RANKS" in os.environ and sys.version_info >= (3, 8):
    try:
        _hook()
    except Exception as error:
        if sys.stderr is not None:
            sys.stderr.write("tk: this process is not debugged: %r\n" % (error,))  # noqa: UP031
_give_way()
