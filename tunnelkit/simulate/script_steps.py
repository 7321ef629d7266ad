"""The needs of a script on the cluster: modules, environments, programs and their interpreters."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tunnelkit.simulate.shell_lines import SimpleCommand, is_plain, simple_commands

_SHELLS = re.compile(r"(?:ba|da|k|z|a)?sh")
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
#: They start the program that one of their words names.
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "horovodrun", "ipython"})
_WRAPPERS = frozenset(
    re.split(
        " ",
        "srun mpirun mpiexec nohup exec env nice ionice stdbuf numactl timeout command setsid "
        "aprun jsrun catchsegv prun orterun taskset chrt",
    )
)
_CONTAINERS = re.compile(r"(?:apptainer|singularity|docker|podman|shifter|enroot|charliecloud)")
#: Python's options with a value, and modules that run another file.
_WITH_VALUE = frozenset("WXQ")
_MAKERS = (["venv"], ["virtualenv"])
_MODULE_VERBS = frozenset({"load", "add", "use", "purge", "swap", "switch", "unload", "rm", "del"})
_MOST_STEPS = 100
#: Files that make commands (`module`, `conda`) known, and set nothing else.
_INITIALISERS = re.compile(
    r"/etc/(?:profile\.d/.*|profile|bashrc|bash\.bashrc)|.*/init/[^/]*|(?:.*/)?conda\.sh", re.S
)
#: Commands that set an environment in a way that is not looked for.
_SETTERS = (("spack", "load"), ("spack", "env"))
_SEARCHED = ("PATH", "MODULEPATH")
#: Programs that bring packages, and the words by which they do.
_INSTALLERS = re.compile(r"pip[0-9.]*|uv|conda|mamba|micromamba|poetry|pixi")
_INSTALLS = frozenset({"install", "sync", "update"})
#: A line that may make a Python file: it writes one, or copies, fetches or unpacks some.
_MAKES_FILES = re.compile(
    r"(?:>|\btee\s)\s*\S*\.py\b|(?:^|[\s;&|(/])(?:cp|mv|ln|hg|tar|unzip|wget|curl|rsync|scp|"
    r"git\s+(?:-\S+\s+)*(?:clone|checkout|pull|worktree|archive|submodule|restore|switch|reset|apply"
    r"|stash)|rclone|aws|gsutil|sbcast|make|jupyter|[^\s;&|]+\.sh)(?:\s|$)"
)
_SOURCES = re.compile(r"\s*(?:source|\.)\s+(?P<file>\S+)\s*(?:#.*)?")
#: Set in a job, so that what follows `:-` does not count.
_SUBMIT_DIR = re.compile(
    r"\$(?:(?:SLURM_SUBMIT_DIR|PBS_O_WORKDIR)\b|"
    r"\{(?:SLURM_SUBMIT_DIR|PBS_O_WORKDIR)(?::?-[^{}]*(?:\{[^{}]*\}[^{}]*)*)?\})"
)
#: Variables that only the job has; `$_` stands for output that only its shell will know.
_OF_THE_JOB = re.compile(r"\$\{?(?:SLURM_|PBS_|TMPDIR\b|_(?!\w))")
#: srun's options of pyxis and Slurm for an image: its files are not the login host's.
_IMAGE = re.compile(r"--container(?:-image|-name)?(?:=.*)?", re.S)
#: The steps, and variables of `export`, that hide others once they are not known: all those whose
#: answers depend on them.
_PYTHON_ALONE = frozenset({"python"})
_HIDES = {
    "cd": frozenset({"cd", "export", "module", "venv", "conda", "python", "program"}),
    "module": frozenset({"module", "python"}),
    "source": frozenset({"module", "python"}),
    "install": _PYTHON_ALONE,
    "MODULEPATH": frozenset({"module", "python"}),
    "venv": _PYTHON_ALONE,
    "conda": _PYTHON_ALONE,
    "PATH": _PYTHON_ALONE,
    # No environment that is entered later undoes it.
    "PYTHONPATH": frozenset({"venv", "conda", "python"}),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a script does for its programs, in order.

    kind: `cd` (directory), `export` (name, value), `module` (the words), `venv` (its directory),
    `conda` (a name or directory), `source` (a file of the user's that may set anything), `install`
    (it brings packages), `python` (interpreter, `file` or `module`, target; of a script in
    Python: `text`). line: in the script, from 1."""

    kind: str
    words: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class ScriptNeeds:
    """All that a script's text says of its needs.

    interpreter: the words of its `#!` line. login: its shell reads a login shell's files. steps:
    see `Step`. programs: (path, line) of those that it starts by a path. unread: the line after
    which steps were left out, since only the job will know what it does; 0 if none were. makes: the
    first line that may make a Python file; 0 if none does."""

    interpreter: tuple[str, ...]
    login: bool
    steps: tuple[Step, ...]
    programs: tuple[tuple[str, int], ...] = ()
    is_python: bool = False
    unread: int = 0
    makes: int = 0


def script_needs(script: bytes) -> ScriptNeeds:
    """Read a script. Never raises: what its text does not say is left out."""
    first = script.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r")
    words = tuple(first[2:].split(None, 2)) if first.startswith("#!") else ()
    name = _interpreter_name(words)
    if _PYTHON.fullmatch(name):
        with_python = name if os.path.basename(words[0]) == "env" else words[0]
        step = Step("python", (with_python, "text", "the script"), 1)
        return ScriptNeeds(words, False, (step,), is_python=True)
    if not _SHELLS.fullmatch(name):
        return ScriptNeeds(words, False, ())
    text = script.decode("utf-8", "replace")
    reader = _Reader()
    reader.read(simple_commands(text))
    is_login = any(
        re.fullmatch(r"-[a-z]*l[a-z]*|--login", word) for part in words[1:] for word in part.split()
    )
    steps, programs = tuple(reader.steps[:_MOST_STEPS]), tuple(reader.programs[:_MOST_STEPS])
    return ScriptNeeds(
        words, is_login, steps, programs, unread=reader.unread, makes=_makes_files(text)
    )


def _makes_files(text: str) -> int:
    lines = enumerate(text.split("\n"), 1)
    made = (
        at
        for at, line in lines
        if line[:1] != "#" and not _initialises(line) and _MAKES_FILES.search(line[:1000])
    )
    return next(made, 0)


def _initialises(line: str) -> bool:
    found = _SOURCES.fullmatch(line)
    return found is not None and _INITIALISERS.fullmatch(found["file"].strip("\"'")) is not None


class _Reader:
    """Keeps what is known of the needs, up to what only the job will know."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.programs: list[tuple[str, int]] = []
        self.unread = 0
        # Kind of step -> the line from which it is not known.
        self._hidden: dict[str, int] = {}
        self._made: set[str] = set()
        # The line from which a subshell's environment is its own; 0: it is the script's.
        self._apart = 0

    def read(self, commands: Iterable[SimpleCommand]) -> None:
        """Read the commands in order."""
        for command in commands:
            if not command.is_sure:
                # What is set for a command alone has no effect on others.
                command = replace(command, assigned=())
            self._made.update(_made_environment(command))
            self._apart = self._apart if command.in_subshell else 0
            for step in _steps(command):
                if command.in_subshell and step.kind not in ("python", "install"):
                    self._apart = command.line
                else:
                    self._take(step, command.is_sure and self._is_known(step))
            if command.is_sure:
                for program in _programs(command):
                    if not self._leaves_out("program"):
                        self.programs.append(program)

    def _take(self, step: Step, is_known: bool) -> None:
        if not is_known:
            name = step.words[0] if step.kind == "export" else step.kind
            for kind in _HIDES.get(name, ()):
                self._hidden.setdefault(kind, step.line)
        elif not self._leaves_out(step.kind):
            self.steps.append(step)
            if step.kind in ("venv", "conda"):
                # Its interpreter is its own.
                self._hidden.pop("python", None)

    def _is_known(self, step: Step) -> bool:
        # An environment that the script itself makes need not be there yet.
        is_made = step.kind in ("venv", "conda") and os.path.normpath(step.words[0]) in self._made
        return not is_made and _is_known(step)

    def _leaves_out(self, kind: str) -> bool:
        line = self._apart or self._hidden.get(kind, 0)
        self.unread = self.unread or line
        return bool(line)


def command_needs(words: Sequence[str]) -> ScriptNeeds:
    """Read a command, as for a script that holds it alone."""
    command = SimpleCommand(tuple(words), 1)
    return ScriptNeeds((), False, tuple(_steps(command)), tuple(_programs(command)))


def _interpreter_name(words: Sequence[str]) -> str:
    name = os.path.basename(words[0]) if words else ""
    if name != "env":
        return name
    rest = (part for word in words[1:] for part in word.split())
    named = next((one for one in rest if not one.startswith("-") and "=" not in one), "")
    return os.path.basename(named)


def _is_known(step: Step) -> bool:
    """Return True if the words that decide about the environment are known."""
    if step.kind in ("python", "source", "install"):
        return step.kind == "python"
    if step.kind == "export":
        return _OF_THE_JOB.search(step.words[1]) is None
    return all(is_plain(_without_environ(word)) for word in step.words)


def _without_environ(word: str) -> str:
    """Return the word without variables that the login host knows as well."""
    return re.sub(r"\$(?:\{(?:HOME|USER|PWD)\}|(?:HOME|USER|PWD)\b)", "", word)


def _steps(command: SimpleCommand) -> Iterator[Step]:
    words, line = command.words, command.line
    name = os.path.basename(words[0])
    if _installs(words):
        yield Step("install", (name,), line)
        return
    for variable, value in command.assigned:
        if variable == "PYTHONPATH" or (variable in _SEARCHED and _needs_path(words, line)):
            yield Step("export", (variable, value), line)
    if name in ("cd", "pushd") and len(words) == 2:
        place = _SUBMIT_DIR.sub(".", words[1])
        if place != ".":
            yield Step("cd", (place,), line)
    elif name == "export":
        for word in words[1:]:
            variable, equals, value = word.partition("=")
            if equals and variable in ("PYTHONPATH", "PATH", "MODULEPATH", "LD_LIBRARY_PATH"):
                yield Step("export", (variable, value), line)
    elif name in ("module", "ml"):
        yield from _module_steps(words, line)
    elif name in ("source", ".") and len(words) > 1:
        if words[1].endswith("/bin/activate"):
            yield Step("venv", (words[1].removesuffix("/bin/activate") or "/",), line)
        elif words[1] == "activate" and len(words) > 2:
            yield Step("conda", (words[2],), line)
        elif not _INITIALISERS.fullmatch(words[1]):
            yield Step("source", (words[1],), line)
    elif (name, *words[1:2]) in _SETTERS:
        yield Step("source", (name,), line)
    elif name in ("conda", "mamba", "micromamba") and words[1:2] == ("activate",):
        plain = [word for word in words[2:] if not word.startswith("-")]
        yield Step("conda", ((plain or ["base"])[0],), line)
    else:
        yield from _python_steps(words, line)


def _installs(words: Sequence[str]) -> bool:
    """Return True for `pip install` and the like, also behind `python -m` or srun."""
    names = [os.path.basename(word) for word in words]
    is_behind = names[0] in _WRAPPERS or _PYTHON.fullmatch(names[0]) is not None
    found = [at for at, name in enumerate(names) if _INSTALLERS.fullmatch(name)]
    if not found or (found[0] and not is_behind):
        return False
    return not _INSTALLS.isdisjoint(words[found[0] + 1 : found[0] + 4])


def _needs_path(words: Sequence[str], line: int) -> bool:
    """Return True for a command that is looked for by the PATH, or MODULEPATH, set for it alone."""
    return words[0] in ("module", "ml") or any(_python_steps(words, line))


def _made_environment(command: SimpleCommand) -> Iterator[str]:
    """Yield the place, or name, of an environment that the command makes."""
    words = [os.path.basename(command.words[0]), *command.words[1:]]
    names = [word for word in words[1:] if not word.startswith("-")]
    if _PYTHON.fullmatch(words[0]) and words[1:2] == ["-m"] and names[:1] in _MAKERS:
        names = names[1:]
    elif words[0] == "uv" and names[:1] == ["venv"]:
        names = names[1:] or [".venv"]
    elif words[0] in ("conda", "mamba", "micromamba") and "create" in names[:2]:
        options = ("-n", "--name", "-p", "--prefix")
        names = [two for one, two in pairwise(words) if one in options]
    elif words[0] != "virtualenv":
        names = []
    yield from map(os.path.normpath, names)


def _module_steps(words: Sequence[str], line: int) -> Iterator[Step]:
    rest = [word for word in words[1:] if not word.startswith("-")]
    if words[0] == "ml" and rest and rest[0] not in _MODULE_VERBS:
        rest = ["load", *rest] if rest[0] not in ("list", "avail", "spider", "save") else []
    if not rest or rest[0] not in _MODULE_VERBS:
        return
    verb = "load" if rest[0] == "add" else rest[0]
    if verb in ("load", "use"):
        # One each, so that the answer names the one that is not there.
        yield from (Step("module", (verb, word), line) for word in rest[1:])
    else:
        yield Step("module", tuple(rest), line)


def _python_steps(words: Sequence[str], line: int) -> Iterator[Step]:
    rest = _unwrapped(words)
    before = words[: len(words) - len(rest)]
    if not rest or any(_CONTAINERS.fullmatch(os.path.basename(word)) for word in words):
        return
    if any(_IMAGE.fullmatch(word) for word in before):
        return
    name = os.path.basename(rest[0])
    if name in _LAUNCHERS:
        file = next((word for word in rest[1:] if word.endswith(".py")), "")
        beside = rest[0].removesuffix(name)
        if file and is_plain(file):
            yield Step("python", (f"{beside}python", "file", file), line)
        return
    if not _PYTHON.fullmatch(name):
        return
    target = _python_target(rest[1:])
    if target is not None and is_plain(target[1]) and is_plain(rest[0]):
        yield Step("python", (rest[0], *target), line)


def _python_target(words: Sequence[str]) -> tuple[str, str] | None:
    """Return the kind and name of what Python is to run; None if it is none of these."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            return "file", word
        letters = word[1:]
        if word.startswith("--") or not letters:
            return None
        if "c" in letters:
            return None
        if "m" in letters:
            module = letters.partition("m")[2] or (rest.pop(0) if rest else "")
            # `-m torch.distributed.run train.py`, `-m cProfile train.py`.
            file = next((one for one in rest if one.endswith(".py")), "")
            return ("file", file) if file else ("module", module) if module else None
        if letters[0] in _WITH_VALUE and len(letters) == 1 and rest:
            rest.pop(0)
    return None


def _unwrapped(words: Sequence[str]) -> list[str]:
    """Return the command without srun, env, nohup and the like before it."""
    name = os.path.basename(words[0])
    if name not in _WRAPPERS:
        return list(words)

    def is_program(word: str) -> bool:
        named = os.path.basename(word)
        return _PYTHON.fullmatch(named) is not None or named in _LAUNCHERS

    at = next((at for at, word in enumerate(words) if at and is_program(word)), None)
    return [] if at is None else list(words[at:])


def _programs(command: SimpleCommand) -> Iterator[tuple[str, int]]:
    """Yield what is started by a path of the user's."""
    word = command.words[0]
    # What another command writes or makes is not there yet, so only scripts count.
    is_script = re.fullmatch(r".+\.(?:sh|py|pl|bash|R)", word) is not None
    if "/" in word and is_script and is_plain(word):
        yield word, command.line
