"""May this process be forked? Not with live threads or a CUDA context, nor when what it has
imported is no longer what lies on the disk."""

import os
import sys
import threading
import types
from typing import Dict, List, Optional, Tuple

#: (mtime_ns, size, inode) of a file; None: it is not there.
Signature = Optional[Tuple[int, int, int]]


class Signatures:
    """The files of the modules that were imported, as they were then."""

    def __init__(self, files: Dict[str, Signature]) -> None:
        self._files = files

    @staticmethod
    def of_loaded(preload: List[str]) -> "Signatures":
        """Of the preloaded modules, all that they brought, and of the interpreter."""
        if not preload:
            return Signatures({})
        files = [sys.executable]
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(module, types.ModuleType) and isinstance(file, str):
                files.append(file)
        return Signatures({file: _signature(file) for file in files})

    def changed(self) -> Optional[str]:
        """What has changed since, in words; None if nothing has."""
        for file, before in self._files.items():
            if _signature(file) != before:
                return f"{file} has changed since it was imported"
        return None


def _signature(file: str) -> Signature:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def unfit() -> Optional[str]:
    """Why a fork of this process would be no good; None if it would be."""
    return _python_threads() or _cuda() or _other_threads()


def _python_threads() -> Optional[str]:
    others = [
        thread.name for thread in threading.enumerate() if thread is not threading.main_thread()
    ]
    if others:
        return "an import has started a thread ({})".format(", ".join(others))
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
    """Threads that a library has started. One that minds forks (OpenBLAS) ends its own before
    a fork and starts them anew when it needs them: so fork once for nothing, then count."""
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
