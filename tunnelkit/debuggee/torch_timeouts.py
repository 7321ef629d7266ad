"""torch.distributed's timeouts made long, as soon as somebody imports it: until then a finder on
sys.meta_path is all that there is. What is done to torch then: torch_timeout_patch.py.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, List, Optional, Sequence

from .library_code import as_library, load

if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
else:
    Loader = object

CONSTANTS = "torch.distributed.constants"
C10D = "torch.distributed.distributed_c10d"
ELASTIC = "torch.distributed.elastic.agent.server.api"


def install(keep: bool = False, rank: Optional[int] = None) -> None:
    """Raise the timeouts of torch.distributed, now if it is there, else as soon as it is.

    `rank`: of this process if it is known; rank 0 says once what has been done.
    """
    if not keep:
        _patch_when_imported([CONSTANTS, C10D], rank)


def install_in_launcher(keep: bool = False) -> None:
    """The same for torchrun's own process: only how long its nodes wait for each other."""
    if not keep:
        _patch_when_imported([ELASTIC], None)


def _patch_when_imported(names: List[str], rank: Optional[int]) -> None:
    pending = []
    for name in names:
        module = sys.modules.get(name)
        if module is None or getattr(module.__spec__, "_initializing", False):
            pending.append(name)
        else:
            _patch(module, rank)
    if pending:
        sys.meta_path.insert(0, _Finder(pending, rank))


@as_library
def _patch(module: ModuleType, rank: Optional[int]) -> None:
    try:
        torch_timeout_patch = load("torch_timeout_patch")
        if module.__name__ == ELASTIC:
            torch_timeout_patch.patch_elastic(module)
        else:
            torch_timeout_patch.patch_constants(module)
        if module.__name__ == C10D:
            torch_timeout_patch.patch_c10d(module, rank)
    except Exception as error:
        text = f"tk: {module.__name__}: timeouts stay as they are: {error!r}\n"
        if sys.stderr is not None:
            sys.stderr.write(text)


@as_library
class _Finder:
    """On sys.meta_path until each of its modules has been imported and patched."""

    def __init__(self, pending: List[str], rank: Optional[int]) -> None:
        self._pending = pending
        self._rank = rank

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> "Optional[ModuleSpec]":
        if name not in self._pending:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = find(name, path, target) if find else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def imported(self, module: ModuleType) -> None:
        """A module is complete. One that failed is still pending: it may be tried again."""
        if module.__name__ not in self._pending:
            return
        self._pending.remove(module.__name__)
        if not self._pending and self in sys.meta_path:
            sys.meta_path.remove(self)
        _patch(module, self._rank)


@as_library
class _Loader(Loader):
    """Loads as the real loader does, which it leaves in its place, and tells the finder."""

    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: "ModuleSpec") -> Optional[ModuleType]:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._finder.imported(module)
