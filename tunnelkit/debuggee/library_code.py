"""Code of tk's own that runs in the program's threads, named so that debuggers take it for a
library's: nobody wants to step into it.
"""

import importlib.util
import sys
from types import CodeType, FunctionType, ModuleType
from typing import TypeVar

_FILE_NAME = "<frozen tunnelkit>"

T = TypeVar("T", bound=object)


def as_library(owner: T) -> T:
    """Rename the code of a function, or of all methods of a class."""
    for one in list(vars(owner).values()) if isinstance(owner, type) else [owner]:
        if isinstance(one, FunctionType):
            one.__code__ = _renamed(one.__code__)
    return owner


def _renamed(code: CodeType) -> CodeType:
    # What is nested in it, too: a debugger stops in a generator expression as well.
    constants = tuple(_renamed(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=_FILE_NAME, co_consts=constants)


as_library(_renamed)


@as_library
def load(name: str) -> ModuleType:
    """Import a module of this package. Its body is a library's, too. Raises ImportError."""
    full_name = f"{__package__}.{name}"
    if full_name not in sys.modules:
        spec = importlib.util.find_spec(full_name)
        get_code = getattr(spec and spec.loader, "get_code", None)
        if spec is None or get_code is None:
            raise ImportError(full_name)
        module = importlib.util.module_from_spec(spec)
        exec(_renamed(get_code(full_name)), vars(module))  # noqa: S102
        sys.modules[full_name] = module
    return sys.modules[full_name]
