"""May this process be forked? Not with live threads or a CUDA context, nor when what it has
imported is no longer what lies on the disk."""

import importlib
import os
import sys
import threading
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Dict, List, Optional, Sequence, Tuple

#: (mtime_ns, size, inode) of a file; None: it is not there.
Signature = Optional[Tuple[int, int, int]]


class Signatures:
    """The files that a process was made of, as they were then."""

    def __init__(self, files: Dict[str, Signature], places: Dict[str, str]) -> None:
        self._files = files
        self._places = places

    @staticmethod
    def of_loaded(preload: List[str], read: Optional[Dict[str, Signature]] = None) -> "Signatures":
        """Of the interpreter and its environment; of the preloaded modules (top-level names
        count) and of all that they brought. `read`: what `ImportRecorder` has seen."""
        files = [sys.executable, os.path.join(sys.prefix, "pyvenv.cfg")]
        debugger = getattr(sys.modules.get("debugpy"), "__file__", None)
        if isinstance(debugger, str):
            files.append(debugger)
        for module in list(sys.modules.values()) if preload else []:
            file = getattr(module, "__file__", None)
            if isinstance(module, ModuleType) and isinstance(file, str):
                files.append(file)
        places = {name.partition(".")[0]: "" for name in preload}
        return Signatures(
            {**{file: _signature(file) for file in files}, **(read or {})},
            {name: _place(name) for name in places},
        )

    def changed(self) -> Optional[str]:
        """The change since, in words; None if nothing has changed."""
        for file, before in self._files.items():
            if _signature(file) != before:
                return f"{file} has changed since it was imported"
        if self._places:
            importlib.invalidate_caches()
        for name, before_place in self._places.items():
            if _place(name) != before_place:
                return f"{name} is found elsewhere than when it was imported"
        return None


class ImportRecorder:
    """On sys.meta_path while modules are imported: takes each file's signature just before it
    is read. One that is edited while others are still imported would otherwise go unnoticed."""

    def __init__(self) -> None:
        self.seen: Dict[str, Signature] = {}

    def __enter__(self) -> "ImportRecorder":
        if PathFinder in sys.meta_path:
            sys.meta_path.insert(sys.meta_path.index(PathFinder), self)
        return self

    def __exit__(self, *exc: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """The answer of PathFinder, recorded."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.has_location and spec.origin:
            self.seen[spec.origin] = _signature(spec.origin)
        return spec


def _place(name: str) -> str:
    """The file that an import of a top-level module would find now; "" if none."""
    try:
        spec = PathFinder.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    return str(spec.origin) if spec is not None else ""


def _signature(file: str) -> Signature:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def unfit() -> Optional[str]:
    """The reason why a fork of this process would not work; None if it would."""
    return _python_threads() or _cuda() or _other_threads()


def _python_threads() -> Optional[str]:
    others = [
        thread.name for thread in threading.enumerate() if thread is not threading.main_thread()
    ]
    if others:
        return f"an import has started a thread ({', '.join(others)})"
    return None


def _cuda() -> Optional[str]:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)
    if callable(is_initialized) and is_initialized():
        return "an import has initialised CUDA"
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                device = os.readlink("/proc/self/fd/" + name)
            except OSError:
                continue
            if device.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri/")):
                return f"an import has opened the GPU ({device})"
    except OSError:
        pass
    return None


def _other_threads() -> Optional[str]:
    """The threads that a library has started, in words.

    A library that handles forks (OpenBLAS) ends its own threads before a fork and starts them again
    when it needs them: so fork once for nothing, then count.
    """
    if _count_tasks() == 1:
        return None
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    left = _count_tasks() - 1
    if left > 0:
        return f"an import has started {left} thread(s) that a fork would lose"
    return None


def _count_tasks() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1
