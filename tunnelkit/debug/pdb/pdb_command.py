"""The words of `tk pdb`: the program for the console, or for pdb's plain text.

    python FILE | -m MODULE        FILE.py                        as for `tk loop`, and a bare file
    python -m paipdb FILE          DEBUG_PORT_NAME=debug DEBUG_TIMEOUT=600 python -m paipdb FILE

The last ones are OpenPAI's. Nothing opens a port of the node, so DEBUG_PORT_NAME is not needed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tunnelkit.debug.loop_command import (
    PAIPDB_NOTE,
    LoopCommand,
    before_program,
    split_environment,
    starts_ranks,
    understand,
)
from tunnelkit.debuggee import python_command
from tunnelkit.errors import UsageError

DEFAULT_TIMEOUT_S = 600.0
#: Runs the Python that the job's PATH has, with the words after it.
PYTHON_THERE = (
    "sh",
    "-c",
    'p=$(command -v python || command -v python3) || exit 127; exec "$p" "$@"',
    "sh",
)
_EXAMPLE = "for example: tk pdb python train.py"


@dataclass(frozen=True)
class PdbProgram:
    """A program for pdb's plain text.

    python: the command of the interpreter. words: FILE or -m MODULE, and arguments. file: the file,
    if it is one. env: added to the job's. notes: for the user.
    """

    python: tuple[str, ...]
    words: tuple[str, ...]
    file: str | None
    env: Mapping[str, str]
    notes: tuple[str, ...]


def console_command(words: Sequence[str], *, ranks: bool = False) -> LoopCommand:
    """Return the command for a loop of one run. ranks: as for `understand`.

    Raises UsageError for words with nothing to debug.
    """
    env, rest = split_environment(words)
    if not rest:
        raise UsageError("no program to debug", hint=_EXAMPLE)
    if _is_bare_file(rest):
        plain = understand(["python", *rest])
        command = replace(
            plain,
            argv=(*PYTHON_THERE, *plain.argv[1:]),
            interpreter=PYTHON_THERE,
            env={**plain.env, **env},
            shown=shlex.join(words),
        )
    else:
        command = understand(words, ranks=ranks)
    if not command.debug:
        raise _no_program(rest)
    kept = tuple(note for note in command.notes if note == PAIPDB_NOTE)
    return replace(command, notes=kept)


def text_program(words: Sequence[str]) -> PdbProgram:
    """Return the program for pdb's plain text. Raises UsageError."""
    env, rest = split_environment(words)
    if not rest:
        raise UsageError("no program to debug", hint=_EXAMPLE)
    if _is_bare_file(rest):
        return PdbProgram(PYTHON_THERE, tuple(rest), rest[0], env, ())
    if starts_ranks(rest):
        raise UsageError("--port debugs one process, and this command starts ranks",
                         hint="without --port one console is for all ranks")  # fmt: skip
    before = before_program(rest)
    given = python_command.parse(rest[len(before) + 1 :])
    program = python_command.without_debugger(given)[0] if given is not None else None
    if program is None or given is None or rest[len(before)].endswith(".py"):
        raise _no_program(rest)
    if program.kind == python_command.CODE:
        raise UsageError("--port debugs a file or a module, not -c CODE",
                         hint="write the code into a file")  # fmt: skip
    return PdbProgram(
        (*before, rest[len(before)], *program.switches),
        tuple(program.words()),
        program.target if program.kind == python_command.FILE else None,
        env,
        (PAIPDB_NOTE,) if given.target == "paipdb" else (),
    )


def timeout_s(words: Sequence[str], environ: Mapping[str, str], given: float | None) -> float:
    """Return how long to wait for somebody who debugs.

    given: `--timeout`; else DEBUG_TIMEOUT counts, of the command line or of tk's own environment.
    Raises UsageError.
    """
    text = split_environment(words)[0].get("DEBUG_TIMEOUT", environ.get("DEBUG_TIMEOUT"))
    if given is None and text is not None:
        try:
            given = float(text)
        except ValueError:
            raise UsageError(
                f"DEBUG_TIMEOUT={text!r} is no number of seconds", hint="for example: 600"
            ) from None
    seconds = DEFAULT_TIMEOUT_S if given is None else given
    if not 0 < seconds < 1e9:
        raise UsageError(f"a timeout of {seconds:g} s can't be", hint="for example: --timeout 600")
    return seconds


def names_paipdb(words: Sequence[str]) -> bool:
    """True for `python -m paipdb FILE`, with variables before it."""
    rest = split_environment(words)[1]
    before = before_program(rest)
    program = python_command.parse(rest[len(before) + 1 :]) if len(before) < len(rest) else None
    return program is not None and (program.kind, program.target) == (
        python_command.MODULE,
        "paipdb",
    )


def _is_bare_file(words: Sequence[str]) -> bool:
    return words[0].endswith(".py")


def _no_program(words: Sequence[str]) -> UsageError:
    before = before_program(words)
    way = "python FILE, or python -m MODULE"
    if 0 < len(before) < len(words):
        python, *rest = words[len(before) :]
        way = shlex.join([*before, python, "-m", "debugpy", *rest])
    return UsageError(f"tk sees no Python program in {shlex.join(words)}", hint=f"give it as {way}")
