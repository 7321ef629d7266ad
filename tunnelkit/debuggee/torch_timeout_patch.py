"""torch.distributed's timeouts made long, so that a rank at a breakpoint kills no other.

The timeouts, by the sources of torch 2.13; a release with another name for one is left as it is:

- every process group's own timeout (gloo: 30 min, NCCL: 10 min, or the user's), which all
  functions that make a group hand to `_new_process_group_helper` or to `split_group`;
- the store's (TCPStore, FileStore: 5 min by themselves, else that of init_process_group), while
  a rank is stopped before it has joined;
- NCCL's heartbeat monitor (8 min), which kills a process whose watchdog is stuck;
- torchrun's exit barrier (5 min): nodes that are done wait so long for the others.

Not reached: `Work.wait(timeout)` and `Store.wait(keys, timeout)` with a timeout of the user's
own (often polls), torch.distributed.rpc, and other frameworks.

library_code.py imports this module.
"""

import functools
import inspect
import os
import sys
from datetime import timedelta
from types import ModuleType
from typing import Callable, Dict, List, Optional

#: Not more: c10d's sockets count milliseconds in 31 bits, 24.8 days.
LONG = timedelta(days=7)
_NOTICE = (
    "tk: collective timeouts are raised to 7 days while debugging; "
    '[debug] collective_timeouts = "keep" leaves them\n'
)
#: Unless the user has set them. Seconds: `LONG`.
_ENVIRONMENT = {
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "604800",
}
#: Of distributed_c10d, those with a parameter `timeout` that ends in a process group or store.
_FUNCTIONS = (
    "_new_process_group_helper",
    "_store_based_barrier",
    "_set_pg_timeout",
    "split_group",
    "monitored_barrier",
    "barrier",
)
_STORES = ("TCPStore", "FileStore")
_BINDINGS = "torch._C._distributed_c10d"
_INIT = "__init__"

_Call = Callable[..., object]


def patch_constants(module: ModuleType) -> None:
    """The defaults of torch.distributed.constants, before others copy them; else their copies."""
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        if hasattr(module, name):
            setattr(module, name, _raised(getattr(module, name)))


def patch_c10d(module: ModuleType, rank: Optional[int]) -> None:
    """torch.distributed.distributed_c10d; `rank` of this process if it is known."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name in _FUNCTIONS:
        _replace(module, name, _patiently)
    _replace(module, "init_process_group", functools.partial(_patiently, before=_notice(rank)))
    for name in _STORES:
        _patch_store(getattr(sys.modules.get(_BINDINGS), name, None))


def _patch_store(store: object) -> None:
    if store is None:
        return
    original: _Call = getattr(store, _INIT)
    takes_timeout = "timeout" in (original.__doc__ or "")
    set_timeout = getattr(store, "set_timeout", None)

    def __init__(self: object, *args: object, **kwargs: object) -> None:
        if takes_timeout and not any(isinstance(value, (timedelta, float)) for value in args):
            kwargs["timeout"] = _raised(kwargs.get("timeout") or LONG)
        original(self, *map(_raised, args), **kwargs)
        if not takes_timeout and set_timeout is not None:
            set_timeout(self, LONG)

    setattr(store, _INIT, functools.wraps(original)(__init__))


def patch_elastic(module: ModuleType) -> None:
    """torch.distributed.elastic.agent.server.api, in torchrun's process."""
    agent = module.SimpleElasticAgent
    original = agent.__init__

    def __init__(self: object, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        vars(self)["_exit_barrier_timeout"] = LONG.total_seconds()

    agent.__init__ = functools.wraps(original)(__init__)


def _notice(rank: Optional[int]) -> Callable[[Dict[str, object]], None]:
    said: List[bool] = []

    def say(kwargs: Dict[str, object]) -> None:
        own = rank if rank is not None else kwargs.get("rank", os.environ.get("RANK", -1))
        if str(own) == "0" and not said:
            said.append(True)
            sys.stderr.write(_NOTICE)
            sys.stderr.flush()

    return say


def _patiently(
    function: _Call, before: Optional[Callable[[Dict[str, object]], None]] = None
) -> _Call:
    """`function`, whose `timeout` is never less than LONG. None and no timeout stay: they mean
    the default, which is long."""
    names = list(inspect.signature(function).parameters)
    position = names.index("timeout") if "timeout" in names else len(names)

    def patiently(*args: object, **kwargs: object) -> object:
        if before is not None:
            before(kwargs)
        if len(args) > position:
            args = (*args[:position], _raised(args[position]), *args[position + 1 :])
        elif "timeout" in kwargs:
            kwargs["timeout"] = _raised(kwargs["timeout"])
        return function(*args, **kwargs)

    return functools.wraps(function)(patiently)


def _raised(value: object) -> object:
    """`value`, not less than LONG if it is a timeout: monitored_barrier takes seconds as well."""
    if isinstance(value, timedelta):
        return max(value, LONG)
    return max(value, LONG.total_seconds()) if isinstance(value, float) else value


def _replace(module: ModuleType, name: str, make: Callable[[_Call], _Call]) -> None:
    """Replace a function, also where `from distributed_c10d import *` has copied it."""
    original = getattr(module, name, None)
    if original is None:
        return
    better = make(original)
    setattr(module, name, better)
    for other_name, other in list(sys.modules.items()):
        if other_name.startswith("torch.distributed") and vars(other).get(name) is original:
            setattr(other, name, better)
