"""The time that a program's imports take, reported when they are slow."""

import os
import sys
import time
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Optional, Sequence

from .library_code import as_library
from .postmortem import Tell

#: An import that took less is not worth preloading.
_SLOW_S = 0.25
_EXECUTE = "exec_module"


def watch_imports(tell: Tell) -> None:
    """From now on, report every slow import that the program itself makes.

    `tell` gets {"module": "torch", "duration_s": 2.1}. What such a module imports in turn is within
    its time and not reported. Modules of the program itself, those below its directory or the
    current one, are not reported either, but what they import is: they are what is edited.
    """
    # Just before the one it asks, so that whatever goes first still does.
    if PathFinder in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _Timer(tell))


@as_library
def _is_programs_own(origin: Optional[str]) -> bool:
    if origin is None or not os.path.isabs(origin):
        return False
    if "site-packages" in origin or "dist-packages" in origin:
        return False  # of an environment that lies within the project
    try:
        own = {os.getcwd(), *sys.path[:1]}
    except OSError:
        return False  # the current directory has been removed
    return any(origin.startswith(place + os.sep) for place in own if os.path.basename(place))


@as_library
class _Timer:
    """Finds nothing itself: hands on what PathFinder finds, its execution timed."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._busy = False

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """As importlib asks."""
        if self._busy or "." in name or path is not None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        loader = spec.loader if spec is not None else None
        if loader is None or not hasattr(loader, _EXECUTE):
            return None
        if _is_programs_own(spec.origin if spec is not None else None):
            return None
        try:
            self._time(name, loader)
        except AttributeError:  # a loader that takes no attributes
            return None
        return spec

    def _time(self, name: str, loader: object) -> None:
        execute = getattr(loader, _EXECUTE)

        def exec_module(module: ModuleType) -> None:
            delattr(loader, _EXECUTE)
            started, self._busy = time.monotonic(), True
            try:
                execute(module)
            finally:
                self._busy = False
                duration_s = time.monotonic() - started
                if duration_s >= _SLOW_S:
                    self._tell({"module": name, "duration_s": round(duration_s, 2)})

        setattr(loader, _EXECUTE, exec_module)
