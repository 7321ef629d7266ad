"""The first code of every Python of a debugged job (site/sitecustomize.py).

It finds out if the process is a rank, and if so puts it under the debugger, or lets it run free
with long timeouts of collectives.

A rank's process replaces itself (execve), so that it keeps its pid, its files and its place below
the launcher, and its program starts as any program under debugpy does.
"""

import os
import sys
from typing import Dict, List, MutableMapping, NamedTuple, Optional

from . import python_command, ranks, torch_timeouts

#: Set across an execve of tk's own, to the pid: the decision has been taken.
DECIDED = "TK_RANKS_DECIDED"
_OURS = ("DEBUGPY_EXTRA_ARGV", "DEBUGPY_RUNNING")


def install(site: str) -> None:
    """Decide and act. `site` is the PYTHONPATH entry that brought us. Returns unless the
    process is replaced. Raises ValueError for a malformed TK_RANKS."""
    environ = os.environ
    contract = ranks.contract(environ)
    rank = ranks.rank_of(environ)
    decided = environ.pop(DECIDED, "") == str(os.getpid())
    given = None if decided else python_command.parse(_own_words()[1:])
    if given is not None and not python_command.is_under_debugger(given):
        program, switches = python_command.without_debugger(given)
        if program is None or python_command.is_helper(program):
            return
        if python_command.is_launcher(program):
            if program is not given:
                # Its ranks are debugged; it would only stand between them and the editor.
                _replace([*program.switches, *program.words()], _without_debugpy(environ))
            torch_timeouts.install_in_launcher(contract.keep_collectives)
            return
        if rank is not None:
            _start(_Start(contract, rank, given, program, switches), environ)
    if rank is not None or decided:
        uninstall(site, environ)
    torch_timeouts.install(contract.keep_collectives, rank.global_rank if rank else None)


def uninstall(site: str, environ: MutableMapping[str, str]) -> None:
    """Take the hook out of this process and of those that it will start: the first Python of
    a rank is the rank, and the debugger takes care of its children itself."""
    kept = [
        entry
        for entry in environ.get("PYTHONPATH", "").split(os.pathsep)
        if os.path.abspath(entry) != site
    ]
    if kept:
        environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        environ.pop("PYTHONPATH", None)
    sys.path[:] = [entry for entry in sys.path if entry != site]


class _Start(NamedTuple):
    """A rank's main program about to start.

    given: as it was started; program: without a debugger of its own; switches: the other switches
    of that debugger.
    """

    contract: ranks.Contract
    rank: ranks.Rank
    given: python_command.Program
    program: python_command.Program
    switches: List[str]


def _start(start: _Start, environ: MutableMapping[str, str]) -> None:
    """Replace this process by the rank under debugpy, or by the bare program.

    The bare program: where it runs free but would wait for an editor itself. Returns if it may go
    on as it is.
    """
    if start.contract.wants(start.rank):
        port = _port(start, environ)
        if port is not None:
            _replace(_debugged(start, port, environ), _without_debugpy(environ))
    if start.program is not start.given:
        words = [*start.program.switches, *start.program.words()]
        _replace(words, _without_debugpy(environ))
    for name in _OURS:
        environ.pop(name, None)


def _port(start: _Start, environ: MutableMapping[str, str]) -> Optional[int]:
    """The port to dial, or None after a message about it."""
    from importlib.util import find_spec

    try:
        if not sys.executable:
            raise ValueError("its interpreter does not know its own path")
        if find_spec("debugpy") is None:
            raise ValueError(f"{sys.executable} has no debugpy (pip install debugpy)")
        node = ranks.node_name(environ)
        return ranks.read_port(ranks.port_file(start.contract.dialin, node))
    except (OSError, ValueError, ImportError) as error:
        say(f"rank {start.rank.global_rank} runs free, not debugged: {error}")
        return None


def _debugged(start: _Start, port: int, environ: MutableMapping[str, str]) -> List[str]:
    from .debugpy_launcher import START

    agent = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    # Not passed on: debugpy takes the values of doubled switches for its target.
    extra = environ.get("DEBUGPY_EXTRA_ARGV", "").split()
    return [
        *start.program.switches,
        *("-c", START, agent, "--connect", f"127.0.0.1:{port}", "--wait-for-client"),
        *start.switches,
        *python_command.kept_switches(extra, but=start.switches),
        *start.program.words(),
    ]


def _without_debugpy(environ: MutableMapping[str, str]) -> Dict[str, str]:
    kept = {name: value for name, value in environ.items() if name not in _OURS}
    # Frozen standard modules make pydevd warn on every start of 3.11+.
    kept.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    return kept


def _replace(words: List[str], environ: Dict[str, str]) -> None:
    environ[DECIDED] = str(os.getpid())
    os.execve(sys.executable, [sys.executable, *words], environ)  # noqa: S606


def _own_words() -> List[str]:
    """The command line of this process, interpreter first."""
    words = getattr(sys, "orig_argv", None)
    if words is not None:
        return list(words)
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def say(text: str) -> None:
    """Print one line for the user on stderr if there is one."""
    try:
        sys.stderr.write(f"tk: {text}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass
