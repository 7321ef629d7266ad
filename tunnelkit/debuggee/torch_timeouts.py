"""torch.distributed's timeouts made long, as soon as somebody imports it: until then a finder on
sys.meta_path is all that there is. What is done to torch then: torch_timeout_patch.py.
"""

import sys
from typing import Any, Callable, Dict, Optional

CONSTANTS = "torch.distributed.constants"
C10D = "torch.distributed.distributed_c10d"
ELASTIC = "torch.distributed.elastic.agent.server.api"

Patch = Callable[[Any], None]


def install(keep: bool = False, rank: Optional[int] = None) -> None:
    """Raise the timeouts of torch.distributed, now if it is there, else as soon as it is.

    `rank`: of this process if it is known; rank 0 says once what has been done.
    """

    def patch_c10d(module: Any) -> None:
        from . import torch_timeout_patch

        torch_timeout_patch.patch_c10d(rank, module)

    if not keep:
        _patch_when_imported({CONSTANTS: _patch_constants, C10D: patch_c10d})


def install_in_launcher(keep: bool = False) -> None:
    """The same for torchrun's own process: only how long its nodes wait for each other."""
    if not keep:
        _patch_when_imported({ELASTIC: _patch_elastic})


def _patch_constants(module: Any) -> None:
    from . import torch_timeout_patch

    torch_timeout_patch.patch_constants(module)


def _patch_elastic(module: Any) -> None:
    from . import torch_timeout_patch

    torch_timeout_patch.patch_elastic(module)


def _patch_when_imported(patches: Dict[str, Patch]) -> None:
    pending = {}
    for name, patch in patches.items():
        module = sys.modules.get(name)
        if module is None or getattr(module.__spec__, "_initializing", False):
            pending[name] = patch
        else:
            _apply(patch, module)
    if pending:
        sys.meta_path.insert(0, _Finder(pending))


def _apply(patch: Patch, module: Any) -> None:
    try:
        patch(module)
    except Exception as error:
        text = f"tk: {module.__name__}: timeouts stay as they are: {error!r}\n"
        if sys.stderr is not None:
            sys.stderr.write(text)


class _Finder:
    """On sys.meta_path until each of its modules has been imported and patched."""

    def __init__(self, pending: Dict[str, Patch]) -> None:
        self._pending = pending

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._pending:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def imported(self, module: Any) -> None:
        """A module is complete. One that failed is still pending: it may be tried again."""
        patch = self._pending.pop(module.__name__, None)
        if not self._pending and self in sys.meta_path:
            sys.meta_path.remove(self)
        if patch is not None:
            _apply(patch, module)


class _Loader:
    """Loads as the real loader does, which it leaves in its place, and tells the finder."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._finder.imported(module)
