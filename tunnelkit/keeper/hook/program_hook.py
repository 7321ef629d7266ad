"""Sent as sitecustomize.py: found by each Python of a script of `tk submit --post-mortem`.

Rules of this file: any Python can read it, 2 as well. It imports nothing that Python has not loaded
by then, never hurts the program that is about to start, and gives way to the user's own
sitecustomize. What happens at an exception is in standing.py, which is read only then.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # For the types in comments.
    from types import FrameType, TracebackType  # noqa: F401
    from typing import Callable, Dict, List, Optional, Type  # noqa: F401

_HERE = os.path.dirname(os.path.abspath(__file__))
#: They start the program in further Pythons; see debuggee/python_command.py.
_LAUNCHERS = (
    "torchrun", "accelerate", "deepspeed", "ds", "horovodrun", "lightning", "fabric", "composer",
    "colossalai", "torchx",
)  # fmt: skip
_LAUNCHER_MODULES = (
    "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed",
    "horovod.runner", "lightning", "composer.cli", "torchx", "colossalai.cli",
)  # fmt: skip


def _words():  # type: () -> List[str]
    words = getattr(sys, "orig_argv", None)
    if words is not None:
        return list(words)
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def is_launcher(words):  # type: (List[str]) -> bool
    """Return True for the command line of a Python that runs torchrun and its kind."""
    at = 1
    while at < len(words):
        word = words[at]
        if not word.startswith("-"):
            return word.rpartition("/")[2] in _LAUNCHERS
        if not word.startswith("--"):
            letters = [one for one in word if one in "cmWX"][:1]
            if letters == ["m"] and word.endswith("m"):
                name = words[at + 1] if at + 1 < len(words) else ""
                return any(name == one or name.startswith(one + ".") for one in _LAUNCHER_MODULES)
            if letters == ["c"]:
                return False
            if letters and word.endswith(letters[0]):
                at += 1
        at += 1
    return False


def _leave_no_trace(keeps_environment):  # type: (bool) -> None
    """Take this directory out of what the program sees, and of what it starts."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    if keeps_environment:
        return
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    entries = [entry for entry in before if os.path.abspath(entry) != _HERE]
    if entries:
        os.environ["PYTHONPATH"] = os.pathsep.join(entries)
    else:
        os.environ.pop("PYTHONPATH", None)


class _Event(str):
    """A key that only the audit event of an uncaught exception meets: others cost a C call each."""

    __hash__ = str.__hash__

    def __eq__(self, other):  # type: (object) -> bool
        _dies(sys._getframe())
        return False


#: The exception that the program dies of; what stands at it, or has stood.
_dying = []  # type: List[BaseException]
_stood = []  # type: List[BaseException]
_print = sys.excepthook


def _excepthook(kind, value, traceback):
    # type: (Type[BaseException], BaseException, Optional[TracebackType]) -> None
    _print(kind, value, traceback)
    if any(one is value for one in _dying):
        _stand(value, True)


def _dies(frame):  # type: (FrameType) -> None
    """Note what the program dies of. Where it has a hook of its own, stand at it here."""
    value = getattr(sys, "last_value", None)
    # A library may have an error printed in the same way, below the program's frames.
    if frame.f_back is not None or not isinstance(value, Exception) or hasattr(sys, "ps1"):
        return
    _dying.append(value)
    if sys.excepthook is not _excepthook:
        _stand(value, False)


def _stand(value, is_printed):  # type: (BaseException, bool) -> None
    if _stood:
        return
    _stood.append(value)
    try:
        path = os.path.join(_HERE, "standing.py")
        with open(path) as file:
            code = compile(file.read(), path, "exec")
        names = {}  # type: Dict[str, Callable[..., None]]
        exec(code, names)  # noqa: S102
        names["stand"](_HERE, value, is_printed)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        if sys.stderr is not None:
            sys.stderr.write("tk: the program is not kept: %r\n" % (error,))  # noqa: UP031


def _give_way():  # type: () -> None
    """Be the next sitecustomize of sys.path, as if this one had never been there."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


def _install():  # type: () -> None
    launches = True
    try:
        launches = sys.version_info >= (3, 8) and is_launcher(_words())
        if not launches and sys.version_info >= (3, 8):
            # Both, as programs compare them.
            sys.excepthook = _excepthook
            setattr(sys, "__excepthook__", _excepthook)  # noqa: B010 - its type says it is final
            events = {_Event("sys.excepthook"): None}  # type: Dict[str, object]
            sys.addaudithook(events.get)
    finally:
        _leave_no_trace(launches)


if __name__ == "sitecustomize":
    _install()
    _give_way()
