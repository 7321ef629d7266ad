"""The words of `tk loop`, turned into a debuggee that dials out.

The forms that people already have in their scripts are understood:

    python -m debugpy [--listen [HOST:]PORT] [--wait-for-client] FILE | -m MODULE | -c CODE
    python -m ptvsd [--host H] [--port P] [--wait] FILE | -m MODULE
    python -m paipdb FILE
    python FILE | -m MODULE | -c CODE

Before each of them, NAME=VALUE is the program's environment.

Launchers (torchrun, srun, mpirun, python -m torch.distributed.run, ...) run as they are, too; each
rank that they start is put under debugpy there (debuggee/rank_hook.py).

Behind other words (`uv run`, `apptainer exec IMAGE`) `python -m debugpy` dials out by its command
line. Anything else runs as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import PurePosixPath

from tunnelkit.debuggee import python_command
from tunnelkit.errors import UsageError
from tunnelkit.messages.agent_calls import LoopSpec, Ranks

#: Replaced by the agent with the port that it holds for debuggees (agent/debug/restart_loop.py).
PORT_MARK = "@TK_DIALIN_PORT@"

_CONNECT = ("--connect", f"127.0.0.1:{PORT_MARK}", "--wait-for-client")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")
_DEBUGPY_FLAGS = {
    "--wait-for-client",
    "--log-to-stderr",
    "--disable-sys-remote-exec",
    "--linux-attach-prefer-lldb",
}
PAIPDB_NOTE = (
    "paipdb opens a port of the node to everybody: "
    "tk's own debugger runs this command, without a port there"
)
NO_POST_MORTEM = "--post-mortem is for a Python program, or for ranks: not used here"
_PTVSD_VALUED = {"--host", "--server-host", "--port", "--log-dir"}
_PTVSD_FLAGS = {"--wait", "--multiprocess", "--no-subprocesses", "--nodebug", "--single-session"}


@dataclass(frozen=True)
class LoopCommand:
    """A command ready for the agent's loop.

    shown: the command as the user typed it. debug: it dials in and waits for an editor. ranks: it
    starts ranks, which dial in instead of it. interpreter: the Python that runs debugpy, where the
    command shows it; then words are debugpy's own arguments, and argv is the command in its plain
    form. file: the Python file that it runs, if it is one. port: the editor port that the command
    itself named, if any. notes: what was changed and why, for the user.
    expands: `$(NAME)` in it is a variable of the pod's, as in a container's command.
    """

    argv: tuple[str, ...]
    words: tuple[str, ...] = ()
    shown: str = ""
    env: dict[str, str] = field(default_factory=dict)
    debug: bool = False
    ranks: bool = False
    interpreter: tuple[str, ...] = ()
    file: str | None = None
    port: int | None = None
    notes: tuple[str, ...] = ()
    expands: bool = False

    @property
    def program(self) -> str:
        """The program that has to be there: the first word as it was given."""
        return self.argv[0]

    @property
    def can_be_kept(self) -> bool:
        """True if --post-mortem is for it: other programs start their Pythons themselves."""
        return self.ranks or bool(self.interpreter)


def loop_spec(
    command: LoopCommand,
    *,
    cwd: str,
    editor_port: int,
    standby: bool = True,
    preload: Sequence[str] = (),
    only: Sequence[int] | None = None,
    post_mortem: bool = False,
    reload: bool = False,
    collectives: str = "raise",
    once: bool = False,
) -> LoopSpec:
    """The agent's parameters for the command in a loop.

    only: the ranks to debug, None for all. collectives: "keep" leaves torch's timeouts as they are.
    reload: is only remembered there. once: the loop ends with its first run.
    """
    ranks: Ranks = {"only": None if only is None else sorted(set(only))}
    if collectives == "keep":
        ranks["collectives"] = collectives
    # Ranks are kept by the session (debug/dap/shared_connection.py).
    keeps_itself = post_mortem and not command.ranks
    env = {**command.env, "TK_POST_MORTEM": "1"} if keeps_itself else command.env
    return {
        "ranks": ranks if command.ranks else None,
        "argv": list(command.argv),
        "interpreter": list(command.interpreter),
        "words": list(command.words),
        "shown": command.shown,
        "env": env,
        "post_mortem": post_mortem,
        "reload": reload,
        "once": once,
        "cwd": cwd,
        "debug": command.debug,
        "editor_port": editor_port,
        "standby": standby,
        "preload": list(preload),
        "expands": command.expands,
    }


#: Launchers that start a script by themselves, and options of wrappers whose values look like one.
_OF_SCRIPTS = frozenset(
    (
        "accelerate",
        "accelerate-launch",
        "deepspeed",
        "ds",
        "lightning",
        "fabric",
        "composer",
        "colossalai",
    )
)
_NAMING = frozenset((
    "-n", "--name", "-p", "--prefix", "--with", "--extra", "--group", "--env", "-e", "--bind", "-B",
))  # fmt: skip


def understand(words: Sequence[str], *, ranks: bool = False) -> LoopCommand:
    """Turn a command line into a LoopCommand.

    ranks: it starts ranks, also if it does not look so (a script that calls srun). Raises
    UsageError for a malformed one.
    """
    env, rest = split_environment(words)
    many = bool(rest) and (ranks or starts_ranks(rest))
    command = _launcher(rest) if many else _understand(rest)
    return replace(command, env={**command.env, **env}, shown=shlex.join(words))


def split_environment(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that `NAME=VALUE CMD` sets, and CMD."""
    env: dict[str, str] = {}
    for position, word in enumerate(words):
        if not _ASSIGNMENT.match(word):
            return env, list(words[position:])
        name, _, value = word.partition("=")
        env[name] = value
    return env, []


def starts_ranks(words: Sequence[str]) -> bool:
    """Return True if this command line calls a launcher.

    For example `torchrun`, `srun`, `python -m deepspeed`, also behind `env`, `uv run` and the like.
    """
    split = _split_python(words)
    if split is not None:
        program = python_command.parse(words[1:])
        if program is None:
            return False
        inner, _ = python_command.without_debugger(program)
        return inner is not None and python_command.is_launcher(inner)
    before = before_program(words)
    follows = words[len(before) : len(before) + 1]
    # `conda run -n ds python x.py`: such a launcher starts scripts, not another Python.
    is_python = bool(follows) and not follows[0].endswith(".py") and "--no_python" not in before
    return any(
        python_command.is_launcher_word(word)
        and not (PurePosixPath(word).name in _OF_SCRIPTS and (is_python or option in _NAMING))
        for option, word in zip(("", *before), before, strict=False)
    )


def before_program(words: Sequence[str]) -> Sequence[str]:
    """The words up to the first Python: what comes after belongs to the program."""
    for position, word in enumerate(words):
        if _PYTHON.fullmatch(PurePosixPath(word).name) or word.endswith(".py"):
            return words[:position]
    return words


def _launcher(words: Sequence[str]) -> LoopCommand:
    note = "every rank is run under debugpy, so that F5 attaches to all of them"
    return LoopCommand(tuple(words), shown=shlex.join(words), debug=True, ranks=True, notes=(note,))


def _understand(words: Sequence[str]) -> LoopCommand:
    if not words:
        raise UsageError(
            "no command to run", hint="for example: tk loop python -m debugpy train.py"
        )
    # Frozen standard modules make pydevd warn on every start of 3.11+.
    env = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    split = _split_python(words)
    if split is None:
        return _wrapped(words, env)
    interpreter, rest = split
    if rest[:2] == ["-m", "debugpy"]:
        return _debugpy(interpreter, rest[2:], env)
    if rest[:2] == ["-m", "ptvsd"]:
        return _ptvsd(interpreter, rest[2:], env)
    if rest[:2] == ["-m", "paipdb"]:
        _check_target(rest[2:], "paipdb")
        return _under_debugpy(interpreter, rest[2:], env, PAIPDB_NOTE)
    if not rest:
        return LoopCommand(tuple(words), env=env, notes=(_no_python(words),))
    return _under_debugpy(interpreter, rest, env, "run under debugpy, so that F5 can attach")


def _under_debugpy(
    interpreter: list[str], target: list[str], env: dict[str, str], note: str
) -> LoopCommand:
    return LoopCommand(
        (*interpreter, "-m", "debugpy", *target),
        words=(*_CONNECT, *target),
        env=env,
        debug=True,
        interpreter=tuple(interpreter),
        file=_file_of(target),
        notes=(note,),
    )


def _no_python(words: Sequence[str]) -> str:
    """The note for a command in which no editor finds anything."""
    before = before_program(words)
    if 0 < len(before) < len(words) and not words[len(before)].endswith(".py"):
        rest = words[len(before) :]
        way = shlex.join([*before, rest[0], "-m", "debugpy", *rest[1:]])
    else:
        way = "python FILE"
    return (
        f"F5 finds nothing here: {shlex.join(words)} runs again and again, but tk sees no "
        f"Python program in it to debug. For F5: tk loop {way}"
    )


def _file_of(target: Sequence[str]) -> str | None:
    """The file that Python is to run; None for -m, -c and stdin."""
    return None if not target or target[0].startswith("-") else target[0]


def _split_python(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """(interpreter and its switches, the rest), or None if this is no Python command."""
    if not _PYTHON.fullmatch(PurePosixPath(words[0]).name):
        return None
    program = python_command.parse(words[1:])
    if program is None:
        return list(words), []
    return [words[0], *program.switches], program.words()


def _wrapped(words: Sequence[str], env: dict[str, str]) -> LoopCommand:
    """A command that starts its Python itself, such as `uv run python -m debugpy x.py`."""
    begun = False
    for position, pair in enumerate(pairwise(words)):
        begun = begun or _PYTHON.fullmatch(PurePosixPath(pair[0]).name) is not None
        if pair == ("-m", "debugpy") and begun:
            before = [*words[:position], *pair]
            inner = _debugpy([], list(words[position + 2 :]), env)
            return replace(inner, argv=(*before, *inner.words), words=(), file=None)
    return LoopCommand(tuple(words), env=env, notes=(_no_python(words),))


def _debugpy(interpreter: list[str], words: list[str], env: dict[str, str]) -> LoopCommand:
    port, kept, notes = None, [], []
    position = 0
    while position < len(words):
        word = words[position]
        if word in ("--listen", "--connect"):
            address = _value(words, position, word)
            port = _port_of(address, word)
            notes.append(
                f"{word} {address} is not used on the node: the debuggee dials out, "
                "so no debug port is open there"
            )
            position += 2
        elif word in _DEBUGPY_FLAGS:
            if word != "--wait-for-client":
                kept.append(word)
            position += 1
        elif word.startswith("--"):
            kept += [word, _value(words, position, word)]
            position += 2
        else:
            break
    target = words[position:]
    _check_target(target, "debugpy")
    return LoopCommand(
        (*interpreter, "-m", "debugpy", *kept, *target),
        words=(*_CONNECT, *kept, *target),
        env=env,
        debug=True,
        interpreter=tuple(interpreter),
        file=_file_of(target),
        port=port,
        notes=tuple(notes),
    )


def _ptvsd(interpreter: list[str], words: list[str], env: dict[str, str]) -> LoopCommand:
    port = None
    position = 0
    while position < len(words):
        word = words[position]
        if word in _PTVSD_VALUED:
            value = _value(words, position, word)
            if word == "--port":
                port = _port_of(value, word)
            position += 2
        elif word in _PTVSD_FLAGS:
            position += 1
        elif word.startswith("--"):
            raise UsageError(
                f"ptvsd has no switch {word}", hint="leave it out; debugpy runs this command"
            )
        else:
            break
    target = words[position:]
    _check_target(target, "ptvsd")
    note = "ptvsd is no longer maintained; its successor debugpy runs this command"
    return replace(_under_debugpy(interpreter, target, env, note), port=port)


def _value(words: list[str], position: int, switch: str) -> str:
    if position + 1 >= len(words):
        raise UsageError(f"{switch} needs a value", hint="give it in the next word")
    return words[position + 1]


def _port_of(address: str, switch: str) -> int:
    try:
        port = int(address.rpartition(":")[2])
    except ValueError:
        port = 0
    if not 1 <= port <= 65535:
        raise UsageError(
            f"{switch} {address!r} names no TCP port", hint="give a number from 1 to 65535"
        )
    return port


def _check_target(target: list[str], program: str) -> None:
    if not target or (target[0] in ("-m", "-c") and len(target) < 2):
        raise UsageError(
            f"python -m {program}: nothing to run",
            hint="name a file, -m module or -c code after its switches",
        )
