"""The module `paipdb` for a debuggee, so that `paipdb.settrace(port=...)` stops in its debugger."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from tunnelkit.debug.ranks.question import EvaluateArguments

#: A file of pydevd's own, whose frames it leaves out.
_NOT_SHOWN = "pydevd_runpy.py"


@lru_cache(maxsize=1)
def offer_paipdb() -> EvaluateArguments:
    """Return the expression that gives the module to the debuggee, in place of OpenPAI's."""
    source = files("tunnelkit.debuggee.evaluated").joinpath("paipdb_module.py").read_text("utf-8")
    return {
        "expression": (
            f"(lambda s, m: (exec(compile({source!r}, {_NOT_SHOWN!r}, 'exec'), m.__dict__), "
            "s.modules.__setitem__('paipdb', m), None)[2])"
            "(__import__('sys'), type(__import__('sys'))('paipdb'))"
        ),
        "context": "clipboard",
    }
