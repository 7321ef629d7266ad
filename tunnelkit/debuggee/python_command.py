"""The program of a Python process, read from its command line.

Sans-IO: words in, words out. The interpreter's options: `python -h` of 3.8 to 3.14.
"""

import re
from typing import List, NamedTuple, Optional, Sequence, Set, Tuple

FILE, MODULE, CODE = "file", "module", "code"

_LONG_VALUED = {"--check-hash-based-pycs"}


class Program(NamedTuple):
    """`python SWITCHES FILE | -m MODULE | -c CODE ARGUMENTS`."""

    switches: Tuple[str, ...]
    kind: str
    target: str
    arguments: Tuple[str, ...] = ()

    def words(self) -> List[str]:
        """The target and its arguments, as Python and debugpy both take them."""
        mark = {FILE: [], MODULE: ["-m"], CODE: ["-c"]}[self.kind]
        return [*mark, self.target, *self.arguments]


def parse(words: Sequence[str]) -> Optional[Program]:
    """The program of an interpreter's arguments; None for a prompt, stdin, --version."""
    switches: List[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return _file(switches, rest)
        if word == "-" or not word.startswith("-"):
            return _file(switches, [word, *rest])
        if word.startswith("--"):
            switches.append(word)
            if word in _LONG_VALUED and rest:
                switches.append(rest.pop(0))
            continue
        letters, letter, value = _cluster(word)
        if letter and not value:
            if not rest:
                return None
            value = rest.pop(0)
        if letter in ("c", "m"):
            if letters:
                switches.append("-" + letters)
            kind = CODE if letter == "c" else MODULE
            return Program(tuple(switches), kind, value, tuple(rest))
        if letters:
            switches.append("-" + letters)
        if letter:
            switches.append("-" + letter + value)
    return None


def _file(switches: List[str], words: List[str]) -> Optional[Program]:
    if not words or words[0] == "-":
        return None
    # After a `--`, which debugpy doesn't take, a file's name may look like a switch.
    target = "./" + words[0] if words[0].startswith("-") else words[0]
    return Program(tuple(switches), FILE, target, tuple(words[1:]))


def _cluster(word: str) -> Tuple[str, str, str]:
    """`-uWignore` is ("u", "W", "ignore"), `-um` ("u", "m", ""), `-uB` ("uB", "", "")."""
    for position, letter in enumerate(word[1:], 1):
        if letter in "cmWX":
            return word[1:position], letter, word[position + 1 :]
    return word[1:], "", ""


_DEBUGPY_FLAGS = {
    "--wait-for-client",
    "--log-to-stderr",
    "--disable-sys-remote-exec",
    "--linux-attach-prefer-lldb",
}
#: How they wait and with whom is ours to say.
_DEBUGPY_OURS = {
    "--wait-for-client",
    "--listen",
    "--connect",
    "--parent-session-pid",
    "--adapter-access-token",
}
_DEBUGGERS = ("debugpy", "debugpy.__main__", "ptvsd", "paipdb")
_PTVSD_FLAGS = {"--wait", "--multiprocess", "--no-subprocesses", "--nodebug", "--single-session"}


def without_debugger(program: Program) -> Tuple[Optional[Program], List[str]]:
    """The program that `python -m debugpy`, `-m ptvsd` or `-m paipdb` would run, and debugpy's
    switches worth keeping.

    Any other program is returned as it is. None: no target (malformed, or --pid).
    """
    name = program.target if program.kind == MODULE else _base_name(program)
    if program.kind == CODE or name not in _DEBUGGERS:
        return program, []
    flags = _DEBUGPY_FLAGS if name.startswith("debugpy") else _PTVSD_FLAGS
    kept, rest = _debugger_switches(list(program.arguments), flags)
    if rest[:1] in (["-m"], ["-c"]):
        if len(rest) < 2:
            return None, []
        kind = MODULE if rest[0] == "-m" else CODE
        found = Program(program.switches, kind, rest[1], tuple(rest[2:]))
    elif rest and not rest[0].startswith("-"):
        found = Program(program.switches, FILE, rest[0], tuple(rest[1:]))
    else:
        return None, []
    return found, kept if name.startswith("debugpy") else []


def kept_switches(words: Sequence[str], but: Sequence[str] = ()) -> List[str]:
    """Of debugpy's switches (DEBUGPY_EXTRA_ARGV) those that don't say where it connects, and
    are not among `but`."""
    return _debugger_switches(list(words), _DEBUGPY_FLAGS, but)[0]


def _debugger_switches(
    words: List[str], flags: Set[str], but: Sequence[str] = ()
) -> Tuple[List[str], List[str]]:
    """(switches worth keeping, the rest)."""
    kept: List[str] = []
    while words and words[0].startswith("--"):
        size = 1 if words[0] in flags else 2
        if words[0] == "--pid":
            return kept, []
        if words[0] not in _DEBUGPY_OURS and words[0] not in but:
            kept += words[:size]
        words = words[size:]
    return kept, words


def _base_name(program: Program) -> str:
    return program.target.rpartition("/")[2] if program.kind == FILE else ""


#: Programs (console scripts) and modules that start ranks and are none.
_LAUNCHER_PROGRAMS = re.compile(
    r"(torchrun|accelerate(-launch)?|deepspeed|ds|horovodrun|lightning|fabric|composer|colossalai"
    r"|torchx|(mpirun|mpiexec)(\.(hydra|openmpi|mpich))?|orterun|prterun|srun|jsrun|ibrun|aprun)"
    r"([\d.]*)"
)
_LAUNCHER_MODULES = re.compile(
    r"(torch\.distributed\.(run|launch|launcher\.\w+)|accelerate(\.commands\.\w+)?"
    r"|deepspeed(\.launcher\.\w+)?|horovod\.runner(\.\w+)*|lightning(\.fabric\.cli)?"
    r"|composer\.cli(\.\w+)?|torchx(\.cli)?(\.\w+)*|colossalai\.cli)(\.__main__)?"
)
#: The same, started as files.
_LAUNCHER_FILES = ("/torch/distributed/run.py", "/torch/distributed/launch.py")

#: Programs that somebody runs along the way, before the program itself.
_HELPER_PROGRAMS = re.compile(r"(pip|conda|mamba|virtualenv|poetry|uv|debugpy-adapter)([\d.]*)")
_HELPER_MODULES = re.compile(
    r"(pip|conda|mamba|venv|virtualenv|ensurepip|site|compileall|sysconfig|zipfile|json\.tool"
    r"|debugpy\.adapter)(\..*)?"
)
#: multiprocessing's own processes. Its spawned workers run the user's code and are none.
_HELPER_CODE = re.compile(
    r"\s*from multiprocessing\.(resource_tracker|semaphore_tracker|forkserver) import main\b"
)


def is_launcher(program: Program) -> bool:
    """True for torchrun and its kind: what it starts are the ranks."""
    if program.kind == MODULE:
        return bool(_LAUNCHER_MODULES.fullmatch(program.target))
    return program.kind == FILE and bool(
        _LAUNCHER_PROGRAMS.fullmatch(_base_name(program))
        or program.target.endswith(_LAUNCHER_FILES)
    )


def is_launcher_word(word: str) -> bool:
    """True if a word of a command line is the name or path of such a program."""
    return bool(_LAUNCHER_PROGRAMS.fullmatch(word.rpartition("/")[2]))


def is_helper(program: Program) -> bool:
    """True for pip, multiprocessing's resource tracker and the like: never a rank's program."""
    if program.kind == MODULE:
        return bool(_HELPER_MODULES.fullmatch(program.target))
    if program.kind == CODE:
        return bool(_HELPER_CODE.match(program.target))
    return bool(_HELPER_PROGRAMS.fullmatch(_base_name(program)))


def is_under_debugger(program: Program) -> bool:
    """True for a child that pydevd has taken along, and for what this house starts."""
    if program.kind == CODE:
        return "import pydevd" in program.target or "tunnelkit.debuggee" in program.target
    return program.kind == FILE and _base_name(program) == "pydevd.py"
